// Package pin gives a goroutine a processor of its own.
//
//	before      threads  * * * *     on cpus  0 1 2 3
//	Pin(2)      caller   *           on cpu   2
//	            others   * * *       on cpus  0 1 3
//	unpin()     as before
//
// Pin locks the goroutine to its thread, binds the thread to one processor, and
// keeps the process's other threads off it: threads that were there before, and
// threads started later, which inherit what their parent has. Other processes
// are not moved. GOMAXPROCS stays as it is at the first pin: the runtime no
// longer adapts it. On systems other than Linux only the thread is locked.
package pin
