package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// One read of this size costs little more than a small one.
	readBytes = 256 * 1024
	// A chunk with less room than this is not filled further.
	leastRoom = 16 * 1024
	// Of a limited link: small, because each connection holds one read outside the queue.
	limitedReadBytes = 4 * 1024
	// What may wait for a receiver although it is due, as in a receiver's kernel buffer: a network holds no more.
	overdueBytes = 4 * 1024 * 1024
	// What one pipe holds at most, under way or stalled: more than 2 GB/s in a tenth of a second.
	heldBytes = 256 * 1024 * 1024
)

// A chunk is a buffer that the reader fills piece by piece; it is free when every piece was written.
type chunk struct {
	bytes [readBytes]byte
	users atomic.Int32
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk() *chunk {
	c := chunks.Get().(*chunk)
	c.users.Store(1)
	return c
}

func (c *chunk) release() {
	if c.users.Add(-1) == 0 {
		chunks.Put(c)
	}
}

type ending int

const (
	open ending = iota
	halfClosed
	reset
)

// A piece is what one read returned, or the end of the connection.
type piece struct {
	due        time.Duration
	chunk      *chunk
	start, end int
	ending     ending
}

func (p piece) size() int64 {
	return int64(p.end - p.start)
}

// A pipe is one direction of one connection: a reader that is never held back by the delay, a queue in the order of
// arrival, and a writer that takes each piece when it is due.
type pipe struct {
	from, to *net.TCPConn
	link     *link
	limit    int64
	mu       sync.Mutex
	pieces   []piece
	// Bytes in `pieces`, and those of them that are due: the first `ripe` pieces.
	held, due int64
	ripe      int
	filled    chan struct{}
	emptied   chan struct{}
	gone      chan struct{}
}

func newPipe(from, to *net.TCPConn, link *link, limit int64) *pipe {
	return &pipe{
		from: from, to: to, link: link, limit: limit,
		filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// receive reads until the connection ends, or the writer is gone.
func (p *pipe) receive(timer *timer) {
	current, used := newChunk(), 0
	defer func() { current.release() }()
	for {
		if readBytes-used < leastRoom {
			current.release()
			current, used = newChunk(), 0
		}
		n, err := p.from.Read(current.bytes[used:min(readBytes, used+p.link.readBytes)])
		if n > 0 {
			current.users.Add(1)
			p.push(piece{due: p.link.admit(int64(n), timer), chunk: current, start: used, end: used + n})
			used += n
			if !p.hasRoom() {
				return
			}
		}
		if err != nil {
			p.push(piece{due: p.link.admit(0, timer), ending: endingOf(err)})
			return
		}
	}
}

func endingOf(err error) ending {
	if errors.Is(err, io.EOF) {
		return halfClosed
	}
	return reset
}

func (p *pipe) push(one piece) {
	p.mu.Lock()
	p.pieces = append(p.pieces, one)
	p.held += one.size()
	p.mu.Unlock()
	signalOne(p.filled)
}

// hasRoom waits while the pipe is full because its receiver does not read. It is false if the writer is gone.
func (p *pipe) hasRoom() bool {
	for {
		if !p.isFull() {
			return true
		}
		select {
		case <-p.emptied:
		case <-p.gone:
			return false
		}
	}
}

func (p *pipe) isFull() bool {
	now, _ := p.link.clock.read()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ripe < len(p.pieces) && p.pieces[p.ripe].due <= now {
		p.due += p.pieces[p.ripe].size()
		p.ripe++
	}
	return p.held >= p.limit || p.due >= overdueBytes
}

func signalOne(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// send writes each piece when it is due, until the connection ends. It is false if the connection must be reset.
func (p *pipe) send(timer *timer) bool {
	defer close(p.gone)
	for {
		first := p.first()
		now := p.link.clock.wait(first.due, timer)
		if first.ending == halfClosed {
			return p.to.CloseWrite() == nil
		}
		if first.ending == reset {
			return false
		}
		end, count := p.dueBy(now)
		_, err := p.to.Write(first.chunk.bytes[first.start:end])
		p.drop(count)
		if err != nil {
			// The receiver's reset needs its time back to the sender, too.
			p.link.clock.wait(now+p.link.delay, timer)
			return false
		}
	}
}

// first waits for the oldest piece.
func (p *pipe) first() piece {
	for {
		p.mu.Lock()
		if len(p.pieces) > 0 {
			oldest := p.pieces[0]
			p.mu.Unlock()
			return oldest
		}
		p.mu.Unlock()
		<-p.filled
	}
}

// dueBy returns where the due bytes of the first chunk end, and how many pieces they are: one write passes them all.
func (p *pipe) dueBy(now time.Duration) (int, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, count := p.pieces[0].end, 1
	for _, next := range p.pieces[1:] {
		if next.due > now || next.chunk != p.pieces[0].chunk || next.start != end {
			break
		}
		end, count = next.end, count+1
	}
	return end, count
}

func (p *pipe) drop(count int) {
	p.mu.Lock()
	for number, one := range p.pieces[:count] {
		p.held -= one.size()
		if number < p.ripe {
			p.due -= one.size()
		}
		one.chunk.release()
	}
	p.ripe = max(0, p.ripe-count)
	p.pieces = p.pieces[count:]
	p.mu.Unlock()
	signalOne(p.emptied)
}
