// Command umbilical-relay stands for a network between two programs on loopback.
//
// It connects each accepted connection to a target and passes bytes, half-closes and resets both ways, each half a
// round trip later. It can also limit the rate and stall. It uses loopback only and ends when stdin closes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	maxRoundTrip = 10 * time.Second
	maxStall     = time.Minute
	minQueue     = 4 * limitedReadBytes
)

type settings struct {
	listen    string
	target    string
	roundTrip time.Duration
	rate      int64
	queue     int64
}

func main() {
	s := parseFlags()
	if err := s.validate(); err != nil {
		fail(err)
	}
	// One core, as the generator: a second one costs more for waking threads than it brings.
	runtime.GOMAXPROCS(1)
	listener, err := listen(s)
	if err != nil {
		fail(err)
	}
	between := newNetwork(s)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go func() { <-stop; os.Exit(0) }()
	go func() { fail(between.serve(listener)) }()
	report(map[string]string{"listening": listener.Addr().String()})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := between.obey(lines.Text()); err != nil {
			fmt.Fprintf(os.Stderr, "umbilical-relay: %v\n", err)
		}
	}
}

func parseFlags() settings {
	var s settings
	flag.StringVar(&s.listen, "listen", "127.0.0.1:0", "address to listen on; loopback only")
	flag.StringVar(&s.target, "target", "", "address to connect to; loopback only")
	flag.DurationVar(&s.roundTrip, "round-trip", 0, "round trip; every byte is delayed by half of it in each direction")
	flag.Int64Var(&s.rate, "rate", 0, "bytes per second of each direction, for all connections together; 0 sets no limit")
	flag.Int64Var(&s.queue, "queue-bytes", 0, "bytes of each direction that may wait for the rate; with --rate only")
	flag.Parse()
	return s
}

func (s settings) validate() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	case !isLoopback(s.listen):
		return fmt.Errorf("--listen=%s is not a loopback address with a port", s.listen)
	case !isLoopback(s.target):
		return fmt.Errorf("--target=%s is not a loopback address with a port", s.target)
	case s.roundTrip < 0 || s.roundTrip > maxRoundTrip:
		return fmt.Errorf("--round-trip must be 0 to %s", maxRoundTrip)
	case s.rate < 0:
		return errors.New("--rate must not be negative")
	case s.rate == 0 && s.queue != 0:
		return errors.New("--queue-bytes needs --rate")
	case s.rate > 0 && s.queue < minQueue:
		return fmt.Errorf("--rate needs --queue-bytes of at least %d", minQueue)
	}
	return nil
}

func isLoopback(text string) bool {
	address, err := netip.ParseAddrPort(text)
	return err == nil && address.Addr().IsLoopback()
}

// obey follows one line of stdin: `stall DURATION` stops the link for that time.
func (n *network) obey(line string) error {
	word, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
	length, err := time.ParseDuration(argument)
	if word != "stall" || err != nil || length <= 0 || length > maxStall {
		return fmt.Errorf("unknown line %q: expected `stall DURATION` of at most %s", line, maxStall)
	}
	n.clock.stall(length)
	report(map[string]float64{"stalled_seconds": length.Seconds()})
	return nil
}

func report(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "umbilical-relay: %v\n", err)
	os.Exit(1)
}

func listen(s settings) (net.Listener, error) {
	config := net.ListenConfig{Control: s.prepare}
	return config.Listen(context.Background(), "tcp", s.listen)
}
