module umbilical.invalid/peers/relay

go 1.26.0
