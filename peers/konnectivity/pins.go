//go:build pins

// Package pins names the upstream programs so that go.mod and go.sum hold all
// that they need. It is never compiled.
package pins

import (
	// Only the test suite needs it, and a suite cannot be imported.
	_ "go.uber.org/goleak"

	_ "sigs.k8s.io/apiserver-network-proxy/cmd/agent"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/server"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/test-client"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/test-server"
	_ "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	_ "sigs.k8s.io/apiserver-network-proxy/tests/framework"
)
