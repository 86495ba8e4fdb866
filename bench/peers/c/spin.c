/* Counts the gaps between readings of the time stamp counter on one processor: spin CPU MILLISECONDS.
 * It prints the gap in ticks that one in 10,000 exceeds, the ticks and the nanoseconds that the run took. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define MAX_GAP (1 << 16)

static uint64_t gaps[MAX_GAP + 1];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t ticks(void)
{
	_mm_lfence();
	return __rdtsc();
}

int main(int argc, char **argv)
{
	cpu_set_t one;
	uint64_t start_ns, ns, start, last, next, total = 0, above, window;
	int i;

	if (argc != 3)
		return 2;
	CPU_ZERO(&one);
	CPU_SET(atoi(argv[1]), &one);
	if (sched_setaffinity(0, sizeof one, &one)) {
		perror("sched_setaffinity");
		return 1;
	}
	window = strtoull(argv[2], NULL, 10) * 1000000u;
	for (i = 0; i <= MAX_GAP; i++)
		gaps[i] = 0; /* the pages are there */
	start_ns = now_ns();
	start = last = ticks();
	do {
		for (i = 0; i < 1 << 20; i++) {
			next = ticks();
			gaps[next - last < MAX_GAP ? next - last : MAX_GAP]++;
			last = next;
		}
		ns = now_ns() - start_ns;
		next = ticks();
		last = next; /* reading the other clock is no gap */
	} while (ns < window);
	for (i = 0; i <= MAX_GAP; i++)
		total += gaps[i];
	above = total / 10000;
	for (i = MAX_GAP; i > 0 && gaps[i] <= above; i--)
		above -= gaps[i];
	printf("%d %llu %llu\n", i, (unsigned long long)(last - start), (unsigned long long)ns);
	return 0;
}
