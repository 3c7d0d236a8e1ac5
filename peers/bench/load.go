package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	openersAtATime = 16
	errorPause     = time.Millisecond
	samplesAhead   = 1 << 15
)

// An exchange sends one payload and wants it back. The buffers live as long as the worker.
type exchange struct {
	request, reply []byte
	number         uint64
}

func newExchange(payload, worker int) *exchange {
	e := &exchange{request: make([]byte, payload), reply: make([]byte, payload)}
	for i := range e.request {
		e.request[i] = byte(worker + i)
	}
	return e
}

func (e *exchange) run(conn net.Conn) error {
	// A fresh number in each request, so that a stale or foreign echo is seen.
	e.number++
	binary.LittleEndian.PutUint64(e.request, e.number)
	if _, err := conn.Write(e.request); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, e.reply); err != nil {
		return err
	}
	if !bytes.Equal(e.request, e.reply) {
		return errors.New("echo differs from what was sent")
	}
	return nil
}

// A tally is one worker's own book: no lock, no sharing until the end.
type tally struct {
	nanoseconds []uint32
	errors      int64
	firstError  error
}

func (t *tally) record(took time.Duration) {
	t.nanoseconds = append(t.nanoseconds, uint32(min(took, 1<<32-1)))
}

func (t *tally) fail(err error) {
	t.errors++
	if t.firstError == nil {
		t.firstError = err
	}
}

// measure runs one worker per connection, all from the same moment, and sums up their books.
func measure(s settings, work func(worker int, deadline time.Time, t *tally)) result {
	books := make([]tally, s.connections)
	for i := range books {
		books[i].nanoseconds = make([]uint32, 0, samplesAhead)
	}
	cpu, start := cpuSeconds(), time.Now()
	var workers sync.WaitGroup
	for i := range books {
		workers.Go(func() { work(i, start.Add(s.window()), &books[i]) })
	}
	workers.Wait()
	r := result{Seconds: time.Since(start).Seconds(), CPUSeconds: cpuSeconds() - cpu}
	sumUp(books, &r)
	return r
}

func sumUp(books []tally, r *result) {
	var all []uint32
	for i := range books {
		all = append(all, books[i].nanoseconds...)
		r.addErrors(books[i].errors, books[i].firstError)
	}
	r.Ops = int64(len(all))
	r.Rate = float64(r.Ops) / r.Seconds
	if len(all) > 0 {
		slices.Sort(all)
		r.P50us = float64(all[len(all)/2]) / 1e3
		r.P99us = float64(all[len(all)*99/100]) / 1e3
	}
}

func (r *result) addErrors(count int64, first error) {
	r.Errors += count
	if r.FirstError == "" && first != nil {
		r.FirstError = first.Error()
	}
}

func runEcho(s settings, dial dialer) (result, error) {
	address, err := listenEcho(s.payload)
	if err != nil {
		return result{}, err
	}
	conns, err := openAll(s.connections, dial, address)
	if err != nil {
		return result{}, err
	}
	return measure(s, func(worker int, deadline time.Time, t *tally) {
		e := newExchange(s.payload, worker)
		for now := time.Now(); now.Before(deadline); {
			if err := e.run(conns[worker]); err != nil {
				t.fail(err)
				return
			}
			end := time.Now()
			t.record(end.Sub(now))
			now = end
		}
	}), nil
}

func runDial(s settings, dial dialer) (result, error) {
	address, err := listenEcho(s.payload)
	if err != nil {
		return result{}, err
	}
	return measure(s, func(worker int, deadline time.Time, t *tally) {
		e := newExchange(s.payload, worker)
		for now := time.Now(); now.Before(deadline); {
			err := dialOnce(dial, address, e)
			end := time.Now()
			if err != nil {
				t.fail(err)
				time.Sleep(errorPause)
			} else {
				t.record(end.Sub(now))
			}
			now = end
		}
	}), nil
}

func dialOnce(dial dialer, address string, e *exchange) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	if err := e.run(conn); err != nil {
		conn.Close()
		return err
	}
	return conn.Close()
}

func runDownload(s settings, dial dialer) (result, error) {
	address, err := listenSource()
	if err != nil {
		return result{}, err
	}
	var received counter
	return transfer(s, dial, address, &received, func(conn net.Conn) {
		if _, err := conn.Write([]byte{'g'}); err == nil {
			countPattern(conn, &received)
		}
	})
}

func runUpload(s settings, dial dialer) (result, error) {
	var received counter
	address, err := listenSink(&received)
	if err != nil {
		return result{}, err
	}
	return transfer(s, dial, address, &received, sendPattern)
}

// transfer opens every tunnel, lets them run for the window and counts what came out at the far end.
func transfer(s settings, dial dialer, address string, received *counter, move func(net.Conn)) (result, error) {
	conns, err := openAll(s.connections, dial, address)
	if err != nil {
		return result{}, err
	}
	ended := make(chan struct{}, len(conns))
	cpu, start := cpuSeconds(), time.Now()
	for _, conn := range conns {
		go func() { move(conn); ended <- struct{}{} }()
	}
	time.Sleep(s.window())
	r := result{Bytes: received.bytes.Load(), Seconds: time.Since(start).Seconds(), CPUSeconds: cpuSeconds() - cpu}
	r.MBPerSecond = float64(r.Bytes) / 1e6 / r.Seconds
	// Nothing ends by itself inside the window: who is through already has failed.
	if early := int64(len(ended)); early > 0 {
		r.addErrors(early, errors.New("a tunnel ended inside the window"))
	}
	if broken := received.broken.Load(); broken > 0 {
		r.addErrors(broken, errors.New("bytes out of order or lost"))
	}
	return r, nil
}

func openAll(count int, dial dialer, address string) ([]net.Conn, error) {
	conns := make([]net.Conn, count)
	failures := make([]error, count)
	slots := make(chan struct{}, openersAtATime)
	var openers sync.WaitGroup
	for i := range conns {
		slots <- struct{}{}
		openers.Go(func() {
			conns[i], failures[i] = dial(address)
			<-slots
		})
	}
	openers.Wait()
	return conns, errors.Join(failures...)
}

// runIdle opens the tunnels, proves each by one exchange, says so, and rests until stdin closes.
func runIdle(s settings, dial dialer) error {
	address, err := listenEcho(s.payload)
	if err != nil {
		return err
	}
	watchdog := time.AfterFunc(openGrace, func() { fail(errors.New("stalled: the tunnels did not open in time")) })
	conns, err := openAll(s.connections, dial, address)
	if err != nil {
		return err
	}
	e := newExchange(s.payload, 0)
	for _, conn := range conns {
		if err := e.run(conn); err != nil {
			return err
		}
	}
	watchdog.Stop()
	if err := printLine(map[string]int{"opened": len(conns)}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
