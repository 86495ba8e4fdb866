// Command peers compares bluering with other programs that send and receive packets, in turns, in one run.
//
//	round 1:  ours ─▶ peer A ─▶ peer B        a figure each
//	round 2:  peer B ─▶ peer A ─▶ ours        the other way round, so that a slow drift hits all
//	...
//	median, range │ ratio ours / peer of each round: median, range, verdict
//
// What is compared is a table of rows, in table_linux.go: a row is contenders that do the same work and
// the bars that ours should clear. To add a contender is to add an entry with a name, the programs it needs and a
// function that runs it once and returns packets and the time they took.
//
// As root it installs missing programs by their Debian packages, unless told not to, and works in network, mount and
// process namespaces of its own: whatever happens, interfaces, files of DPDK and processes go with them. What is not
// in a namespace, the number of huge pages and one temporary directory, is put back at the end, after a signal too.
// Anybody else gets the rows that need no interface. What is missing is named, and the rest runs.
//
// A rate over an interface is what the receiving interface's own counter says.
package main
