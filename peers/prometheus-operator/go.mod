// Nothing is built from it: its CRDs are copied out of the module as published.
// Not for `go mod tidy`, which would take the requirement away.
module umbilical.invalid/peers/prometheus-operator

go 1.25.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
