/* Preloaded into a process (LD_PRELOAD): calls that write to certain files fail as on a full or broken disk.
 *
 * DISK_PATH   part of the paths that are concerned; without it nothing happens
 * DISK_CALL   name of the only call that fails and is counted: open, write, pwrite, fsync, truncate, close, rename, link,
 *             unlink, mkdir; without it all of them
 * DISK_LOG    file that gets a line "NUMBER CALL RESULT PATH" per call on such a path
 * DISK_FROM   number (from 1) of the first call that fails
 * DISK_COUNT  how many calls fail from there on; 0: all
 * DISK_ERROR  errno that they fail with
 *
 * The variables are read at each call, so that a process may set them after it was forked. Calls of one process are
 * counted; a write that follows an earlier one writes half of its bytes first, as on a disk that has just become full.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int calls;

static long number_of(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* Returns the errno that this call has to fail with, or 0. */
static int judge(const char *call, const char *path) {
    const char *wanted = getenv("DISK_PATH"), *log = getenv("DISK_LOG"), *only = getenv("DISK_CALL");
    if (!wanted || !*wanted || !path || !strstr(path, wanted) || (log && strstr(path, log)))
        return 0;
    int concerned = !only || !strcmp(only, call);
    long number = __sync_add_and_fetch(&calls, concerned);
    long from = number_of("DISK_FROM", 0), count = number_of("DISK_COUNT", 1);
    int fails = concerned && from && number >= from && (!count || number < from + count);
    int error = fails ? (int)number_of("DISK_ERROR", ENOSPC) : 0;
    if (log) {
        char line[4500];
        int length = snprintf(line, sizeof line, "%ld %s %d %s\n", number, call, error, path);
        int file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        syscall(SYS_write, file, line, length);
        syscall(SYS_close, file);
    }
    return error;
}

static const char *path_of(int descriptor, char *buffer, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, buffer, size - 1);
    if (length < 0)
        return NULL;
    buffer[length] = 0;
    return buffer;
}

static int judge_descriptor(const char *call, int descriptor) {
    char buffer[4096];
    if (!getenv("DISK_PATH"))
        return 0;
    return judge(call, path_of(descriptor, buffer, sizeof buffer));
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL_IF(condition)          \
    do {                            \
        int error_ = (condition);   \
        if (error_) {               \
            errno = error_;         \
            return -1;              \
        }                           \
    } while (0)
#define OPEN(name, parameters, path, arguments)                                                  \
    int name parameters {                                                                        \
        mode_t va_mode = 0;                                                                      \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                   \
            va_list rest;                                                                        \
            va_start(rest, flags);                                                               \
            va_mode = va_arg(rest, mode_t);                                                      \
            va_end(rest);                                                                        \
        }                                                                                        \
        if ((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT)                                  \
            FAIL_IF(judge("open", path));                                                        \
        return REAL(name) arguments;                                                             \
    }

OPEN(open, (const char *path, int flags, ...), path, (path, flags, va_mode))
OPEN(open64, (const char *path, int flags, ...), path, (path, flags, va_mode))
OPEN(openat, (int folder, const char *path, int flags, ...), path, (folder, path, flags, va_mode))
OPEN(openat64, (int folder, const char *path, int flags, ...), path, (folder, path, flags, va_mode))

ssize_t write(int descriptor, const void *data, size_t size) {
    int error = judge_descriptor("write", descriptor);
    if (error && size > 1)
        REAL(write)(descriptor, data, size / 2);
    FAIL_IF(error);
    return REAL(write)(descriptor, data, size);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t place) {
    int error = judge_descriptor("pwrite", descriptor);
    if (error && size > 1)
        REAL(pwrite64)(descriptor, data, size / 2, place);
    FAIL_IF(error);
    return REAL(pwrite64)(descriptor, data, size, place);
}

int fsync(int descriptor) {
    FAIL_IF(judge_descriptor("fsync", descriptor));
    return REAL(fsync)(descriptor);
}

int ftruncate64(int descriptor, off64_t size) {
    FAIL_IF(judge_descriptor("truncate", descriptor));
    return REAL(ftruncate64)(descriptor, size);
}

int close(int descriptor) {
    char buffer[4096];
    int error = 0;
    if (getenv("DISK_PATH") && (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY)
        error = judge("close", path_of(descriptor, buffer, sizeof buffer));
    int result = REAL(close)(descriptor); /* As in the kernel: closed all the same. */
    FAIL_IF(error);
    return result;
}

int rename(const char *from, const char *to) {
    FAIL_IF(judge("rename", to));
    return REAL(rename)(from, to);
}

int link(const char *from, const char *to) {
    FAIL_IF(judge("link", to));
    return REAL(link)(from, to);
}

int unlink(const char *path) {
    FAIL_IF(judge("unlink", path));
    return REAL(unlink)(path);
}

int mkdir(const char *path, mode_t mode) {
    FAIL_IF(judge("mkdir", path));
    return REAL(mkdir)(path, mode);
}
