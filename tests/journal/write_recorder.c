/* Records what a process writes to the files of one folder, in order, for `power_cuts.py`.
 *
 * Preloaded, it passes every call on and appends a record to the file RECORD_LOG for those that
 * concern files in the folder RECORD_FOLDER: kind, file, offset and length in native byte order, then
 * the bytes. Files that SQLite maps into memory (-shm) are left out: they are rebuilt after a crash. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPENED = 1, WRITTEN, TRUNCATED, SYNCED, REMOVED };
enum { MOST_DESCRIPTORS = 4096, MOST_FILES = 1024 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int log_descriptor = -1;
static const char *folder;
static char *names[MOST_FILES];
static int file_of[MOST_DESCRIPTORS];

__attribute__((constructor)) static void begin(void) {
    const char *log = getenv("RECORD_LOG");
    folder = getenv("RECORD_FOLDER");
    for (int at = 0; at < MOST_DESCRIPTORS; at++) file_of[at] = -1;
    if (log != NULL && folder != NULL)
        log_descriptor = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
}

static void record(uint32_t kind, uint32_t file, uint64_t offset, const void *data, size_t length) {
    struct { uint32_t kind, file; uint64_t offset, length; } head = {kind, file, offset, length};
    syscall(SYS_write, log_descriptor, &head, sizeof head);
    if (length) syscall(SYS_write, log_descriptor, data, length);
}

static int number(const char *path) {
    size_t length = strlen(path);
    if (log_descriptor < 0 || strncmp(path, folder, strlen(folder)) != 0) return -1;
    if (length > 4 && strcmp(path + length - 4, "-shm") == 0) return -1;
    for (int at = 0; at < MOST_FILES; at++) {
        if (names[at] == NULL) names[at] = strdup(path);
        if (strcmp(names[at], path) == 0) return at;
    }
    abort();
}

static int opened(int descriptor, const char *path, int flags) {
    if (descriptor < 0 || descriptor >= MOST_DESCRIPTORS) return descriptor;
    pthread_mutex_lock(&turn);
    int file = file_of[descriptor] = number(path);
    if (file >= 0) {
        record(OPENED, file, 0, path, strlen(path));
        if (flags & O_TRUNC) record(TRUNCATED, file, 0, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return descriptor;
}

static int found(int descriptor) {
    return descriptor >= 0 && descriptor < MOST_DESCRIPTORS ? file_of[descriptor] : -1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(flags, mode)                              \
    mode_t mode = 0;                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {             \
        va_list more;                                  \
        va_start(more, flags);                         \
        mode = va_arg(more, mode_t);                   \
        va_end(more);                                  \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(NEXT(open)(path, flags, mode), path, flags);
}

int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(NEXT(open64)(path, flags, mode), path, flags);
}

int openat(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(NEXT(openat)(at, path, flags, mode), path, flags);
}

int openat64(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(NEXT(openat64)(at, path, flags, mode), path, flags);
}

int close(int descriptor) {
    if (found(descriptor) >= 0) file_of[descriptor] = -1;
    return NEXT(close)(descriptor);
}

/* A call that changes a file is recorded while no other is under way: the order is the true one. */
#define CHANGE(result, call, kind, offset, data, length)                 \
    pthread_mutex_lock(&turn);                                           \
    result = call;                                                       \
    if (result >= 0) record(kind, found(descriptor), offset, data, length); \
    pthread_mutex_unlock(&turn);                                         \
    return result;

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    if (found(descriptor) < 0) return NEXT(pwrite)(descriptor, data, length, offset);
    ssize_t written;
    CHANGE(written, NEXT(pwrite)(descriptor, data, length, offset), WRITTEN, offset, data, written)
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t offset) {
    if (found(descriptor) < 0) return NEXT(pwrite64)(descriptor, data, length, offset);
    ssize_t written;
    CHANGE(written, NEXT(pwrite64)(descriptor, data, length, offset), WRITTEN, offset, data, written)
}

ssize_t write(int descriptor, const void *data, size_t length) {
    if (found(descriptor) < 0) return NEXT(write)(descriptor, data, length);
    ssize_t written;
    uint64_t offset = lseek(descriptor, 0, SEEK_CUR);
    CHANGE(written, NEXT(write)(descriptor, data, length), WRITTEN, offset, data, written)
}

int ftruncate(int descriptor, off_t length) {
    if (found(descriptor) < 0) return NEXT(ftruncate)(descriptor, length);
    int result;
    CHANGE(result, NEXT(ftruncate)(descriptor, length), TRUNCATED, length, NULL, 0)
}

int ftruncate64(int descriptor, off64_t length) {
    if (found(descriptor) < 0) return NEXT(ftruncate64)(descriptor, length);
    int result;
    CHANGE(result, NEXT(ftruncate64)(descriptor, length), TRUNCATED, length, NULL, 0)
}

int fsync(int descriptor) {
    if (found(descriptor) < 0) return NEXT(fsync)(descriptor);
    int result;
    CHANGE(result, NEXT(fsync)(descriptor), SYNCED, 0, NULL, 0)
}

int fdatasync(int descriptor) {
    if (found(descriptor) < 0) return NEXT(fdatasync)(descriptor);
    int result;
    CHANGE(result, NEXT(fdatasync)(descriptor), SYNCED, 0, NULL, 0)
}

int unlink(const char *path) {
    pthread_mutex_lock(&turn);
    int file = number(path);
    int result = NEXT(unlink)(path);
    if (file >= 0 && result == 0) record(REMOVED, file, 0, NULL, 0);
    pthread_mutex_unlock(&turn);
    return result;
}
