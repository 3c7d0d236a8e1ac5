package main

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// A linkClock is the time of the link: it stands still while the link stalls, so that everything under way is late by
// the length of the stall and nothing else changes.
type linkClock struct {
	mu         sync.Mutex
	origin     time.Time
	lost       time.Duration
	stallStart time.Time
	stallEnd   time.Time
}

func newLinkClock() *linkClock {
	return &linkClock{origin: time.Now()}
}

// read returns the link's time, and for how long it will stand still.
func (c *linkClock) read() (time.Duration, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.stallEnd.IsZero() {
		return now.Sub(c.origin) - c.lost, 0
	}
	if left := c.stallEnd.Sub(now); left > 0 {
		return c.stallStart.Sub(c.origin) - c.lost, left
	}
	c.lost += c.stallEnd.Sub(c.stallStart)
	c.stallEnd = time.Time{}
	return now.Sub(c.origin) - c.lost, 0
}

// stall stops the clock for a time from now on.
func (c *linkClock) stall(length time.Duration) {
	c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.stallEnd.IsZero() {
		c.stallStart, c.stallEnd = now, now
	}
	if end := now.Add(length); end.After(c.stallEnd) {
		c.stallEnd = end
	}
}

// wait returns the link's time when it has reached `due`.
func (c *linkClock) wait(due time.Duration, timer *timer) time.Duration {
	for {
		now, standing := c.read()
		if now >= due {
			return now
		}
		timer.sleep(max(standing, due-now))
	}
}

// A timer sleeps with the accuracy of the kernel's clock: Go's own timers are late by up to a millisecond, which is a
// tenth of a short round trip.
type timer struct {
	file *os.File
	raw  uintptr
}

const timerNonblock = syscall.O_NONBLOCK | syscall.O_CLOEXEC

func newTimer() (*timer, error) {
	const monotonic = 1
	raw, _, failed := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, timerNonblock, 0)
	if failed != 0 {
		return nil, os.NewSyscallError("timerfd_create", failed)
	}
	return &timer{file: os.NewFile(raw, "timer"), raw: raw}, nil
}

func (t *timer) sleep(length time.Duration) {
	setting := [2]syscall.Timespec{{}, syscall.NsecToTimespec(max(1, int64(length)))}
	_, _, failed := syscall.Syscall6(
		syscall.SYS_TIMERFD_SETTIME, t.raw, 0, uintptr(unsafe.Pointer(&setting)), 0, 0, 0)
	if failed != 0 {
		fail(os.NewSyscallError("timerfd_settime", failed))
	}
	var ticks [8]byte
	if _, err := t.file.Read(ticks[:]); err != nil {
		fail(err)
	}
}

func (t *timer) close() {
	t.file.Close()
}
