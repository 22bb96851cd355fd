/* A clock that is off by FAULTS_CLOCK seconds, for a process that loads this first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long off(void) {
    const char *seconds = getenv("FAULTS_CLOCK");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += off();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (place) *place = exact.tv_sec;
    return exact.tv_sec;
}
