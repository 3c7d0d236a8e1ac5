package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

const (
	// The transfer pattern is byte number modulo 251: a prime, so that a lost
	// or repeated block of any usual size shifts it.
	patternPeriod = 251
	blockBytes    = patternPeriod * 256
	readBytes     = 256 * 1024
)

// pattern is the same for every connection and never written after start.
var pattern = func() []byte {
	block := make([]byte, blockBytes)
	for i := range block {
		block[i] = byte(i % patternPeriod)
	}
	return block
}()

// listen serves every accepted connection in its own goroutine until the process ends.
func listen(s settings, serve func(net.Conn)) (string, error) {
	listener, err := net.Listen("tcp4", s.listen)
	if err != nil {
		return "", err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if s.mode == "direct" && !passes(conn) {
					conn.Close()
					return
				}
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String(), nil
}

func listenEcho(s settings) (string, error) {
	buffers := sync.Pool{New: func() any { b := make([]byte, s.payload); return &b }}
	return listen(s, func(conn net.Conn) {
		defer conn.Close()
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		for {
			n, err := conn.Read(*buffer)
			if n > 0 {
				if _, err := conn.Write((*buffer)[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
}

// listenSource sends the pattern without end, after one byte has arrived.
func listenSource(s settings) (string, error) {
	return listen(s, func(conn net.Conn) {
		defer conn.Close()
		if askedFor(conn) {
			sendPattern(conn)
		}
	})
}

func askedFor(conn net.Conn) bool {
	var ask [1]byte
	_, err := io.ReadFull(conn, ask[:])
	return err == nil
}

// listenSink counts the bytes that arrive.
func listenSink(s settings, received *counter) (string, error) {
	return listen(s, func(conn net.Conn) {
		defer conn.Close()
		countPattern(conn, received)
	})
}

func sendPattern(conn net.Conn) {
	for {
		if _, err := conn.Write(pattern); err != nil {
			return
		}
	}
}

// A counter is shared by all readers of one run; they add once per read.
type counter struct {
	bytes  atomic.Int64
	broken atomic.Int64
	ended  atomic.Int64
}

// countPattern checks the first and last byte of every read: enough to detect a lost, repeated or moved byte.
func countPattern(conn net.Conn, received *counter) {
	buffer := make([]byte, readBytes)
	offset := 0
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			if buffer[0] != byte(offset%patternPeriod) || buffer[n-1] != byte((offset+n-1)%patternPeriod) {
				received.broken.Add(1)
				return
			}
			offset += n
			received.bytes.Add(int64(n))
		}
		if err != nil {
			return
		}
	}
}
