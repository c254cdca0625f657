/* A preloaded library that shows one process another wall clock.
 *
 * SHIFT_FILE names a file of three 64-bit integers that the harness maps too: the
 * nanoseconds by which the clock is shifted, the parts per million by which it runs
 * faster than the kernel's, and the kernel's time at which it began to do so. They may
 * change while the process runs. Monotonic clocks are as they are, so that timeouts of
 * the process keep their length. It neither allocates nor resolves symbols: some
 * allocators ask for the time before they can serve.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct shift {
	volatile int64_t by, ppm, since;
};

static const int64_t second = 1000000000;
static const struct shift *shift;

__attribute__((constructor)) static void map_shift(void)
{
	const char *name = getenv("SHIFT_FILE");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		shift = at;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	if (syscall(SYS_clock_gettime, clock, ts) != 0)
		return -1;
	if (shift == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return 0;
	int64_t now = ts->tv_sec * second + ts->tv_nsec;
	now += shift->by + (now - shift->since) / 1000000 * shift->ppm;
	ts->tv_sec = now / second;
	ts->tv_nsec = now % second;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return (time_t)-1;
	if (out != NULL)
		*out = ts.tv_sec;
	return ts.tv_sec;
}
