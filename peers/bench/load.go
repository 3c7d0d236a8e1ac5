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

// An exchange sends one payload and waits for its echo. A worker reuses the buffers.
type exchange struct {
	request, reply []byte
	number         uint64
	// Bytes of the reply so far, if the exchange continues in the next window.
	awaited bool
	got     int
}

func newExchange(payload, worker int) *exchange {
	e := &exchange{request: make([]byte, payload), reply: make([]byte, payload)}
	for i := range e.request {
		e.request[i] = byte(worker + i)
	}
	return e
}

// run makes one exchange. If a deadline interrupted the last one, it waits for the rest of that reply instead.
func (e *exchange) run(conn net.Conn) error {
	if !e.awaited {
		if err := e.send(conn); err != nil {
			return err
		}
	}
	n, err := io.ReadFull(conn, e.reply[e.got:])
	e.got += n
	if err != nil {
		return err
	}
	e.awaited = false
	if !bytes.Equal(e.request, e.reply) {
		return errors.New("echo differs from what was sent")
	}
	return nil
}

func (e *exchange) send(conn net.Conn) error {
	// A new number in each request detects a late echo or one of another tunnel.
	e.number++
	binary.LittleEndian.PutUint64(e.request, e.number)
	e.awaited, e.got = true, 0
	_, err := conn.Write(e.request)
	return err
}

// A tally has the counts of one worker: no lock, not shared until the end.
type tally struct {
	nanoseconds []uint64
	unfinished  int64
	errors      int64
	firstError  error
}

func (t *tally) record(took time.Duration) {
	t.nanoseconds = append(t.nanoseconds, uint64(took))
}

// cut counts an exchange that did not finish: with its time so far at a deadline, otherwise as an error.
func (t *tally) cut(err error, after time.Duration) {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.fail(err)
		return
	}
	t.unfinished++
	t.record(after)
}

func (t *tally) fail(err error) {
	t.errors++
	if t.firstError == nil {
		t.firstError = err
	}
}

// measure runs one worker per connection, all started at the same time, and adds up their tallies.
func measure(s settings, work func(worker int, deadline time.Time, t *tally)) result {
	books := make([]tally, s.connections)
	for i := range books {
		books[i].nanoseconds = make([]uint64, 0, samplesAhead)
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
	var all []uint64
	for i := range books {
		all = append(all, books[i].nanoseconds...)
		r.Unfinished += books[i].unfinished
		r.addErrors(books[i].errors, books[i].firstError)
	}
	r.Ops = int64(len(all)) - r.Unfinished
	r.Rate = float64(r.Ops) / r.Seconds
	if len(all) > 0 {
		slices.Sort(all)
		r.P50us = float64(all[len(all)/2]) / 1e3
		r.P99us = float64(all[len(all)*99/100]) / 1e3
		r.LongestUs = float64(all[len(all)-1]) / 1e3
	}
}

func (r *result) addErrors(count int64, first error) {
	r.Errors += count
	if r.FirstError == "" && first != nil {
		r.FirstError = first.Error()
	}
}

func runEcho(s settings, dial dialer) (result, error) {
	address, err := listenEcho(s)
	if err != nil {
		return result{}, err
	}
	conns, err := openAll(s.connections, dial, address)
	if err != nil {
		return result{}, err
	}
	exchanges := newExchanges(s)
	return measure(s, func(worker int, deadline time.Time, t *tally) {
		echoUntil(deadline, conns[worker], exchanges[worker], t)
	}), nil
}

func newExchanges(s settings) []*exchange {
	exchanges := make([]*exchange, s.connections)
	for worker := range exchanges {
		exchanges[worker] = newExchange(s.payload, worker)
	}
	return exchanges
}

// echoUntil makes one exchange after another, until one fails or ends after the deadline.
func echoUntil(deadline time.Time, conn net.Conn, e *exchange, t *tally) {
	for now := time.Now(); now.Before(deadline); {
		err := e.run(conn)
		end := time.Now()
		if err != nil {
			t.cut(err, end.Sub(now))
			return
		}
		t.record(end.Sub(now))
		now = end
	}
}

func runDial(s settings, dial dialer) (result, error) {
	address, err := listenEcho(s)
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
		e.awaited = false // the rest of the reply belongs to this tunnel, not to the next
		conn.Close()
		return err
	}
	return conn.Close()
}

func runDownload(s settings, dial dialer) (result, error) {
	address, err := listenSource(s)
	if err != nil {
		return result{}, err
	}
	var received counter
	return transfer(s, dial, address, &received, func(conn net.Conn) { askAndCount(conn, &received) })
}

func askAndCount(conn net.Conn, received *counter) {
	if _, err := conn.Write([]byte{'g'}); err == nil {
		countPattern(conn, received)
	}
}

func runUpload(s settings, dial dialer) (result, error) {
	var received counter
	address, err := listenSink(s, &received)
	if err != nil {
		return result{}, err
	}
	return transfer(s, dial, address, &received, sendPattern)
}

// transfer opens every tunnel, lets them run for the window and counts the bytes at the receiver.
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
	seconds := countSeconds(start, s.window(), received)
	// On a busy machine a short window may end before the first byte; the watchdog detects a real stall.
	for received.bytes.Load() == 0 && len(ended) == 0 {
		time.Sleep(errorPause)
	}
	r := result{Bytes: received.bytes.Load(), Seconds: time.Since(start).Seconds(), CPUSeconds: cpuSeconds() - cpu}
	r.MBPerSecond = float64(r.Bytes) / 1e6 / r.Seconds
	r.MBEachSecond = seconds
	// No transfer ends inside the window, except by an error.
	if early := int64(len(ended)); early > 0 {
		r.addErrors(early, errors.New("a tunnel ended inside the window"))
	}
	if broken := received.broken.Load(); broken > 0 {
		r.addErrors(broken, errors.New("bytes out of order or lost"))
	}
	return r, nil
}

// countSeconds waits for the window and returns the MB of each whole second in it.
func countSeconds(start time.Time, window time.Duration, received *counter) []float64 {
	var each []float64
	var before int64
	for end := time.Second; end <= window; end += time.Second {
		time.Sleep(time.Until(start.Add(end)))
		bytes := received.bytes.Load()
		each = append(each, float64(bytes-before)/1e6)
		before = bytes
	}
	time.Sleep(time.Until(start.Add(window)))
	return each
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

// runIdle opens the tunnels, makes one exchange on each, prints their number, and waits until stdin closes.
func runIdle(s settings, dial dialer) error {
	address, err := listenEcho(s)
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
