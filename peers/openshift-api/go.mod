// Nothing is built from it: its CRDs are copied out of the module as published.
// Not for `go mod tidy`, which would take the requirement away.
module umbilical.invalid/peers/openshift-api

go 1.25.0

require github.com/openshift/api v0.0.0-20260813212709-d4bb0b443cb8
