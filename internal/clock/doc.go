// Package clock tells time and makes schedules.
//
//	Monotonic   the runtime's monotonic clock: exact, 25 to 50 ns a reading
//	System      the processor's time stamp counter where it is invariant,
//	            re-anchored on the monotonic clock; else Monotonic
//	Virtual     moves only when told to: for tests and simulations
//
// All times are nanoseconds in an int64. System and Monotonic share the epoch
// of the operating system's monotonic clock (CLOCK_MONOTONIC on Linux), so
// that two processes of one boot can compare their readings.
//
// # Schedules
//
// A Schedule says when packet k of a run at a given rate leaves, as
//
//	At(k) = floor(k * 1e9 * Den / Num) ns
//
// computed from k alone with 128-bit integers: nothing is accumulated, so
// packet 2^33 is as exact as packet 1. A Cursor walks the same values with
// additions only.
//
//	k      0    1    2    3    4 ...          rate = Num/Den packets a second
//	       |----|----|----|----|              one schedule for the whole run
//	queue  0    1    2    0    1              Cursor(start = queue, stride = queues)
package clock
