// Nothing is built from it: its CRDs are copied out of the module as published.
// Not for `go mod tidy`, which would take the requirement away.
module umbilical.invalid/peers/cert-manager

go 1.25.0

require github.com/cert-manager/cert-manager v1.21.2
