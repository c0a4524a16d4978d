/* libOpenCL.so.1 for programs that `manycl exec` runs: OpenCL's functions are Python functions of manycl's, in the
   program's own process (docs/c_programs.md). What comes before and after this file is written by building.py:
   the constants MANYCL_*, which are of the Python that manycl has, and a function for each one of OpenCL's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_RESOURCES = -5, INVALID_OPERATION = -59, PLATFORM_NOT_FOUND = -1001 };
enum { NO_ANSWER, SERVES, FAILED };

/* What Python is given. `entries`: its functions, in the order of the ICD's table; `functions`: that table, which all
   handles begin with. `ready(outcome)`: Python has filled `entries`; `wait()` until the process ends; `ended()`: all is
   done; does not return; `attend()`: be called before libraries that were loaded until now are taken down. */
struct service {
    void *entries[MANYCL_COUNT];
    void **functions;
    void (*ready)(int outcome);
    void (*wait)(void);
    void (*ended)(void);
    void (*attend)(void);
};
static struct service service;
static const char *const names[MANYCL_COUNT];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int answer = NO_ANSWER, is_over, has_ended;
static int missing = INVALID_OPERATION; /* what functions that are not there answer */
static pid_t owner;

static void ready(int outcome)
{
    pthread_mutex_lock(&lock);
    answer = outcome;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for_end(void)
{
    pthread_mutex_lock(&lock);
    while (!is_over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void ended(void)
{
    pthread_mutex_lock(&lock);
    has_ended = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (;;) /* the interpreter is not taken down: threads of the program's may be in it */
        pause();
}

static void forget(int status)
{
    missing = status;
    for (int i = 0; i < MANYCL_COUNT; i++)
        __atomic_store_n(&service.entries[i], NULL, __ATOMIC_RELEASE);
}

static void end(void)
{
    if (getpid() != owner || answer != SERVES)
        return;
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_cond_broadcast(&changed);
    while (!has_ended)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    forget(OUT_OF_RESOURCES);
}

static void attend(void)
{
    atexit(end);
}

static void in_child(void)
{
    forget(OUT_OF_RESOURCES); /* no thread of Python's is in a forked process */
}

static void *interpret(void *library)
{
    int (*main_of)(int, char **) = (int (*)(int, char **))dlsym(library, "Py_BytesMain");
    char code[4096];
    snprintf(code, sizeof code, "import sys; sys.path.insert(0, %s); from manycl_c.serving import serve; serve(%lu)",
             MANYCL_FOLDER, (unsigned long)&service);
    char *words[] = {MANYCL_PYTHON, "-E", "-P", "-X", "utf8", "-c", code, NULL};
    if (main_of)
        main_of(7, words);
    ready(FAILED);
    return NULL;
}

/* Python changes what belongs to the program, for itself: put it back. */
static const int touched[] = {SIGINT, SIGPIPE, SIGXFSZ};

static int begin_python(void)
{
    struct sigaction kept[3];
    char *places = strdup(setlocale(LC_CTYPE, NULL)), *variable = getenv("LC_CTYPE");
    variable = variable ? strdup(variable) : NULL;
    for (int i = 0; i < 3; i++)
        sigaction(touched[i], NULL, &kept[i]);
    void *library = dlopen(MANYCL_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL);
    pthread_t thread;
    if (!library) {
        fprintf(stderr, "manycl: %s\n", dlerror());
        return FAILED;
    }
    if (pthread_create(&thread, NULL, interpret, library))
        return FAILED;
    pthread_detach(thread);
    pthread_mutex_lock(&lock);
    while (answer == NO_ANSWER)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 3; i++)
        sigaction(touched[i], &kept[i], NULL);
    setlocale(LC_CTYPE, places);
    if (variable)
        setenv("LC_CTYPE", variable, 1);
    else
        unsetenv("LC_CTYPE");
    free(places);
    free(variable);
    return answer;
}

/* The other libOpenCL.so.1, for processes that manycl leaves alone: Python's, and those without MANYCL=1. */
static void *try_folder(const char *folder, size_t length)
{
    char path[4096];
    Dl_info self, other;
    if (!length || snprintf(path, sizeof path, "%.*s/libOpenCL.so.1", (int)length, folder) >= (int)sizeof path)
        return NULL;
    void *found = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *first = found ? dlsym(found, "clGetPlatformIDs") : NULL;
    if (first && dladdr(first, &other) && dladdr((void *)&ready, &self) && other.dli_fbase != self.dli_fbase)
        return found;
    return NULL;
}

static int pass_through(void)
{
    static const char *const usual[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                        "/usr/lib", "/usr/local/lib", "/opt/rocm/lib", "/usr/local/cuda/lib64"};
    const char *folders = getenv("LD_LIBRARY_PATH");
    void *found = NULL;
    while (folders && *folders && !found) {
        size_t length = strcspn(folders, ":");
        found = try_folder(folders, length);
        folders += length + (folders[length] == ':');
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !found; i++)
        found = try_folder(usual[i], strlen(usual[i]));
    if (!found)
        return FAILED;
    for (int i = 0; i < MANYCL_COUNT; i++)
        service.entries[i] = names[i] ? dlsym(found, names[i]) : NULL;
    return SERVES;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static volatile int is_starting;
static void *functions[MANYCL_COUNT];
static void *address_of(const char *name);

static void start(void)
{
    const char *wanted = getenv("MANYCL");
    is_starting = 1;
    owner = getpid();
    service.functions = functions;
    service.ready = ready;
    service.wait = wait_for_end;
    service.ended = ended;
    service.attend = attend;
    if (dlsym(RTLD_DEFAULT, "Py_BytesMain") || !wanted || strcmp(wanted, "1"))
        missing = pass_through() == SERVES ? missing : PLATFORM_NOT_FOUND;
    else if (begin_python() == SERVES) {
        pthread_atfork(NULL, NULL, in_child);
        attend();
    } else
        forget(PLATFORM_NOT_FOUND);
    is_starting = 0;
}

static void *entry(int number)
{
    pthread_once(&once, start);
    return __atomic_load_n(&service.entries[number], __ATOMIC_ACQUIRE);
}

static void *none(int *status)
{
    if (status)
        *status = missing;
    return NULL;
}

/* What arguments of kernels were set to last. Programs set all of them before each launch, mostly to what they are:
   then Python need not be asked. Each is known as long as nothing was made or released, as what is made may get the
   address of what is gone. */
enum { ARGUMENTS = 1024, LONGEST = 16 };
static struct argument {
    const void *kernel;
    unsigned index, size;
    unsigned long since;
    char value[LONGEST];
} arguments[ARGUMENTS];
static pthread_mutex_t arguments_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long changes; /* how often something was made or released */

static void objects_change(void)
{
    __atomic_add_fetch(&changes, 1, __ATOMIC_ACQ_REL);
}

static struct argument *argument_of(const void *kernel, unsigned index)
{
    return &arguments[(((size_t)kernel >> 4) * 31 + index) % ARGUMENTS];
}

/* Whether it is set to that. If not, it is not known until `argument_set`. */
static int is_argument(const void *kernel, unsigned index, size_t size, const void *value)
{
    struct argument *one = argument_of(kernel, index);
    pthread_mutex_lock(&arguments_lock);
    int is_of = one->kernel == kernel && one->index == index;
    int is_same = is_of && value && size && size <= LONGEST && one->size == size &&
                  one->since == __atomic_load_n(&changes, __ATOMIC_ACQUIRE) && !memcmp(one->value, value, size);
    if (is_of && !is_same)
        one->kernel = NULL;
    pthread_mutex_unlock(&arguments_lock);
    return is_same;
}

/* It was set, after so many changes. */
static void argument_set(const void *kernel, unsigned index, size_t size, const void *value, unsigned long since)
{
    struct argument *one = argument_of(kernel, index);
    if (answer != SERVES || !value || !size || size > LONGEST)
        return;
    pthread_mutex_lock(&arguments_lock);
    one->kernel = kernel;
    one->index = index;
    one->size = size;
    one->since = since;
    memcpy(one->value, value, size);
    pthread_mutex_unlock(&arguments_lock);
}
