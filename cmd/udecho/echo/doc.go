// Package echo is udecho as a library: it measures UD datagrams between two
// ends, and is the other end.
//
//	Serve    answers or counts datagrams of clients that an exchange introduced
//	Ping     one datagram after another, or at a rate: every one accounted for
//	BW       as many as go, or at a rate, to an end that counts them
//	Scan     a probe stream for each UDP source port: latency and loss by path
//
// The goroutine that calls them owns the queue pair.
package echo
