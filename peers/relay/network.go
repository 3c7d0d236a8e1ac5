package main

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	connectTimeout = 10 * time.Second
	// Buffers of a limited link: what the kernel holds is not in the relay's queue, so it must be small.
	limitedBufferBytes = 16 * 1024
	// Loopback's segments are 64 KiB, four times such a buffer; a real network's fit.
	limitedSegmentBytes = 1460
)

// A link is one direction of the network, shared by all connections.
type link struct {
	clock     *linkClock
	delay     time.Duration
	rate      int64
	queue     int64
	readBytes int
	mu        sync.Mutex
	// When the last admitted byte has left the queue.
	free time.Duration
}

// admit waits until the queue has room for `count` bytes, and returns when they arrive at the other end.
func (l *link) admit(count int64, timer *timer) time.Duration {
	if l.rate == 0 {
		now, _ := l.clock.read()
		return now + l.delay
	}
	for {
		due, roomAt := l.tryAdmit(count)
		if due > 0 {
			return due
		}
		l.clock.wait(roomAt, timer)
	}
}

// tryAdmit returns when the bytes arrive, or when the queue will have room for them.
func (l *link) tryAdmit(count int64) (time.Duration, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, _ := l.clock.read()
	if roomAt := l.free - l.takes(l.queue-count); roomAt > now {
		return 0, roomAt
	}
	l.free = max(l.free, now) + l.takes(count)
	return l.free + l.delay, 0
}

func (l *link) takes(count int64) time.Duration {
	return time.Duration(float64(count) / float64(l.rate) * float64(time.Second))
}

// A network is the whole network between the two programs.
type network struct {
	settings settings
	clock    *linkClock
	there    *link
	back     *link
	limit    int64
}

func newNetwork(s settings) *network {
	clock := newLinkClock()
	direction := func() *link {
		one := &link{clock: clock, delay: s.roundTrip / 2, rate: s.rate, queue: s.queue, readBytes: readBytes}
		if s.rate > 0 {
			one.readBytes = limitedReadBytes
		}
		return one
	}
	n := &network{settings: s, clock: clock, there: direction(), back: direction(), limit: heldBytes}
	if s.rate > 0 {
		n.limit = min(n.limit, s.queue+int64(s.roundTrip.Seconds()/2*float64(s.rate)))
	}
	return n
}

func (n *network) serve(listener net.Listener) error {
	for {
		accepted, err := listener.Accept()
		if err != nil {
			return err
		}
		go n.relay(accepted.(*net.TCPConn))
	}
}

// relay connects to the target and passes both directions, until both ended or one was reset.
func (n *network) relay(near *net.TCPConn) {
	far, err := n.connect()
	if err != nil {
		abort(near)
		return
	}
	var ends sync.WaitGroup
	for _, one := range []*pipe{newPipe(near, far, n.there, n.limit), newPipe(far, near, n.back, n.limit)} {
		n.start(&ends, func(timer *timer) { one.receive(timer) })
		n.start(&ends, func(timer *timer) {
			if !one.send(timer) {
				abort(near)
				abort(far)
			}
		})
	}
	ends.Wait()
	near.Close()
	far.Close()
}

func (n *network) connect() (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	dialer := net.Dialer{Control: n.settings.prepare}
	conn, err := dialer.DialContext(ctx, "tcp", n.settings.target)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func (n *network) start(ends *sync.WaitGroup, work func(*timer)) {
	timer, err := newTimer()
	if err != nil {
		fail(err)
	}
	ends.Go(func() {
		defer timer.close()
		work(timer)
	})
}

// abort closes with a reset.
func abort(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// prepare sets the buffers before the connection exists: its window's scale depends on them. Without a limit the
// kernel tunes them.
func (s settings) prepare(_, _ string, raw syscall.RawConn) error {
	if s.rate == 0 {
		return nil
	}
	var failed error
	err := raw.Control(func(descriptor uintptr) {
		set := func(level, option, value int) {
			if failed == nil {
				failed = syscall.SetsockoptInt(int(descriptor), level, option, value)
			}
		}
		set(syscall.SOL_SOCKET, syscall.SO_RCVBUF, limitedBufferBytes)
		set(syscall.SOL_SOCKET, syscall.SO_SNDBUF, limitedBufferBytes)
		set(syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, limitedSegmentBytes)
	})
	if err != nil {
		return err
	}
	return failed
}
