package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// With --hold a test keeps its tunnels open for several measurements, so that one tunnel can be measured alone and then
// beside others. It prints how many tunnels it opened, and then one result for each line on stdin until stdin closes.
// Exchanges run for a window after their line; transfers start at the first line, and each further line prints what was
// transferred since the line before.

type counted func() (result, error)

func hold(s settings, dial dialer) error {
	time.AfterFunc(holdLimit, func() { fail(errors.New("--hold timed out: stdin was not closed")) })
	watchdog := time.AfterFunc(openGrace, func() { fail(errors.New("stalled: the tunnels did not open in time")) })
	next, err := openHeld(s, dial)
	if err != nil {
		return err
	}
	watchdog.Stop()
	if err := printLine(map[string]int{"opened": s.connections}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		r, err := next()
		if err != nil {
			return err
		}
		if err := printResult(s, r); err != nil {
			return err
		}
	}
	return nil
}

func openHeld(s settings, dial dialer) (counted, error) {
	switch s.test {
	case "echo":
		return holdEcho(s, dial)
	case "download", "upload":
		return holdTransfer(s, dial)
	case "stuck-clients":
		return holdStuckClients(s, dial)
	case "stuck-endpoints":
		return holdStuckEndpoints(s, dial)
	}
	return nil, fmt.Errorf("--test=%s does not support --hold", s.test)
}

func holdEcho(s settings, dial dialer) (counted, error) {
	address, err := listenEcho(s)
	if err != nil {
		return nil, err
	}
	conns, err := openAll(s.connections, dial, address)
	if err != nil {
		return nil, err
	}
	exchanges := newExchanges(s)
	return func() (result, error) {
		return measure(s, func(worker int, deadline time.Time, t *tally) {
			// Beside a stuck tunnel an exchange may never end; the window ends anyway.
			if err := conns[worker].SetDeadline(deadline); err != nil {
				t.fail(err)
				return
			}
			echoUntil(deadline, conns[worker], exchanges[worker], t)
		}), nil
	}, nil
}

func holdTransfer(s settings, dial dialer) (counted, error) {
	received := &counter{}
	listenFar := func() (string, error) { return listenSink(s, received) }
	move := sendPattern
	if s.test == "download" {
		listenFar = func() (string, error) { return listenSource(s) }
		move = func(conn net.Conn) { askAndCount(conn, received) }
	}
	return holdMoving(s, dial, listenFar, func(conn net.Conn) { move(conn); received.ended.Add(1) }, received)
}

// holdStuckClients lets each endpoint send bytes to a client that requested them and never reads.
func holdStuckClients(s settings, dial dialer) (counted, error) {
	offered := &counter{}
	kept := make(chan net.Conn, s.connections)
	far := func() (string, error) {
		return listen(s, func(conn net.Conn) {
			if askedFor(conn) {
				offerPattern(conn, s.offer, offered)
			}
			kept <- conn // the garbage collector would close it, and a closed tunnel is not stuck
		})
	}
	return holdMoving(s, dial, far, func(conn net.Conn) {
		if _, err := conn.Write([]byte{'g'}); err != nil {
			offered.broken.Add(1)
		}
	}, offered)
}

// holdStuckEndpoints lets each client send bytes to an endpoint that never reads.
func holdStuckEndpoints(s settings, dial dialer) (counted, error) {
	offered := &counter{}
	unread := make(chan net.Conn, s.connections)
	far := func() (string, error) {
		return listen(s, func(conn net.Conn) { unread <- conn })
	}
	return holdMoving(s, dial, far, func(conn net.Conn) { offerPattern(conn, s.offer, offered) }, offered)
}

// offerPattern writes until all bytes are accepted, and leaves the tunnel open.
func offerPattern(conn net.Conn, amount int64, taken *counter) {
	for left := amount; left > 0; {
		n, err := conn.Write(pattern[:min(left, blockBytes)])
		left -= int64(n)
		taken.bytes.Add(int64(n))
		if err != nil {
			taken.broken.Add(1)
			return
		}
	}
}

func holdMoving(
	s settings, dial dialer, far func() (string, error), move func(net.Conn), moved *counter,
) (counted, error) {
	address, err := far()
	if err != nil {
		return nil, err
	}
	conns, err := openAll(s.connections, dial, address)
	if err != nil {
		return nil, err
	}
	began := time.Time{}
	var before int64
	var cpu float64
	return func() (result, error) {
		if began.IsZero() {
			for _, conn := range conns {
				go move(conn)
			}
		}
		now, bytes, used := time.Now(), moved.bytes.Load(), cpuSeconds()
		r := result{Bytes: bytes - before, CPUSeconds: used - cpu, Ended: moved.ended.Load()}
		if !began.IsZero() {
			r.Seconds = now.Sub(began).Seconds()
			r.MBPerSecond = float64(r.Bytes) / 1e6 / r.Seconds
		}
		began, before, cpu = now, bytes, used
		if broken := moved.broken.Load(); broken > 0 {
			r.addErrors(broken, errors.New("a tunnel ended, or its bytes were out of order"))
		}
		return r, nil
	}, nil
}
