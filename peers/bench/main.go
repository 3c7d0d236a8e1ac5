// Command umbilical-load loads a Konnectivity tunnel and prints one JSON line.
//
// It is client and endpoint in one process: the endpoints listen on 127.0.0.1,
// the clients connect to the server's Unix socket. It uses no other network,
// and every run has a time limit.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

const (
	minPayload = 16
	// A stalled tunnel ends the run with an error after this time.
	stallGrace = 20 * time.Second
	// Opening a thousand tunnels takes a second; a slow server may take longer.
	openGrace = 60 * time.Second
	// Limit of a test with --hold, in case its caller never closes stdin.
	holdLimit = 10 * time.Minute
	// Live memory is small: with the default of 100 the garbage collector would run all the time.
	gcPercent = 800
)

type settings struct {
	mode        string
	uds         string
	proxy       string
	test        string
	connections int
	seconds     float64
	payload     int
	threads     int
	listen      string
	hold        bool
	offer       int64
}

type result struct {
	Mode        string  `json:"mode"`
	Test        string  `json:"test"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	Ops         int64   `json:"ops"`
	Rate        float64 `json:"rate"`
	P50us       float64 `json:"p50_us,omitempty"`
	P99us       float64 `json:"p99_us,omitempty"`
	LongestUs   float64 `json:"longest_us,omitempty"`
	Unfinished  int64   `json:"unfinished,omitempty"`
	Bytes       int64   `json:"bytes,omitempty"`
	MBPerSecond float64 `json:"mb_per_second,omitempty"`
	// Of each whole second since the start.
	MBEachSecond []float64 `json:"mb_each_second,omitempty"`
	// Held transfers that ended by themselves.
	Ended      int64   `json:"ended,omitempty"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Errors     int64   `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
}

func main() {
	s := parseFlags()
	if err := s.validate(); err != nil {
		fail(err)
	}
	runtime.GOMAXPROCS(s.threads)
	debug.SetGCPercent(gcPercent)
	if err := run(s); err != nil {
		fail(err)
	}
}

func parseFlags() settings {
	var s settings
	flag.StringVar(&s.mode, "mode", "http-connect", "protocol: http-connect, grpc, direct (no dial: the socket or --proxy leads to --listen), socks5, or proxy (CONNECT)")
	flag.StringVar(&s.proxy, "proxy", "", "address of a proxy on loopback, for the modes socks5, proxy and direct")
	flag.StringVar(&s.uds, "uds", "", "path of the server's Unix socket")
	flag.StringVar(&s.test, "test", "echo", "test to run: echo, download, upload, dial, idle, stuck-clients or stuck-endpoints")
	flag.IntVar(&s.connections, "connections", 1, "number of concurrent tunnels")
	flag.Float64Var(&s.seconds, "seconds", 2, "length of the measurement in seconds")
	flag.IntVar(&s.payload, "payload", 128, "bytes of one exchange (echo, dial, idle)")
	flag.IntVar(&s.threads, "threads", 1, "number of cores that the generator uses")
	flag.StringVar(&s.listen, "listen", "127.0.0.1:0", "address of the endpoint; loopback only")
	flag.BoolVar(&s.hold, "hold", false, "open the tunnels, then measure once for each line on stdin")
	flag.Int64Var(&s.offer, "offer", 64<<20, "bytes to send into each stuck tunnel")
	flag.Parse()
	return s
}

func (s settings) validate() error {
	switch {
	case s.uds == "" && s.proxy == "":
		return errors.New("--uds or --proxy is needed")
	case s.proxy != "" && !isLoopback(s.proxy):
		return fmt.Errorf("--proxy=%s is not a loopback address with a port", s.proxy)
	case s.connections < 1 || s.connections > 5000:
		return errors.New("--connections must be 1 to 5000")
	case s.seconds <= 0 || s.seconds > 600:
		return errors.New("--seconds must be above 0 and at most 600")
	case s.payload < minPayload || s.payload > 65536:
		return fmt.Errorf("--payload must be %d to 65536", minPayload)
	case s.threads < 1:
		return errors.New("--threads must be at least 1")
	case s.offer < 1:
		return errors.New("--offer must be at least 1")
	case s.hold && (s.test == "dial" || s.mode == "grpc"):
		return errors.New("--hold is for tunnels that stay open, in the modes http-connect and direct")
	}
	return s.validateListen()
}

func (s settings) validateListen() error {
	if !isLoopback(s.listen) {
		return fmt.Errorf("--listen=%s is not a loopback address with a port", s.listen)
	}
	return nil
}

func isLoopback(text string) bool {
	address, err := netip.ParseAddrPort(text)
	return err == nil && address.Addr().IsLoopback()
}

func (s settings) window() time.Duration {
	return time.Duration(s.seconds * float64(time.Second))
}

func run(s settings) error {
	dial, err := newDialer(s.mode, s.uds, s.proxy)
	if err != nil {
		return err
	}
	if s.test == "idle" {
		return runIdle(s, dial)
	}
	if s.hold || strings.HasPrefix(s.test, "stuck-") {
		return hold(s, dial)
	}
	tests := map[string]func(settings, dialer) (result, error){
		"echo": runEcho, "dial": runDial, "download": runDownload, "upload": runUpload,
	}
	if test, known := tests[s.test]; known {
		return report(s, test, dial)
	}
	return fmt.Errorf("unknown --test=%s", s.test)
}

func report(s settings, test func(settings, dialer) (result, error), dial dialer) error {
	watchdog := time.AfterFunc(openGrace+s.window()+stallGrace, func() {
		fail(errors.New("stalled: the tunnel did not answer in time"))
	})
	defer watchdog.Stop()
	r, err := test(s, dial)
	if err != nil {
		return err
	}
	return printResult(s, r)
}

func printResult(s settings, r result) error {
	r.Mode, r.Test, r.Connections = s.mode, s.test, s.connections
	return printLine(r)
}

func printLine(value any) error {
	return json.NewEncoder(os.Stdout).Encode(value)
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "umbilical-load: %v\n", err)
	os.Exit(1)
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
