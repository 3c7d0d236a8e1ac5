//go:build pins

// Package pins imports the upstream programs so that go.mod and go.sum list
// all their dependencies. It is never compiled.
package pins

import (
	// A dependency of the test suite, which itself cannot be imported.
	_ "go.uber.org/goleak"

	_ "sigs.k8s.io/apiserver-network-proxy/cmd/agent"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/server"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/test-client"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/test-server"
	_ "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	_ "sigs.k8s.io/apiserver-network-proxy/tests/framework"
)
