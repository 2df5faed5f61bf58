package mirror

// Holding is o with a worker that holds n runs of the map at a time.
func (o VerifyOptions) Holding(n int) VerifyOptions {
	o.hold = n
	return o
}
