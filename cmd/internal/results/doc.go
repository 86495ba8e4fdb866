// Package results is what the commands' reports share: requests that cannot be
// done (UsageError), numbers with units in and out, files that appear whole or
// not at all, conditions on a report's numbers, and the facts of the host.
package results
