"""Runs programs of other projects (openssl, haproxy, etcd, kubectl, ...) on a temporary copy of the artifacts."""
