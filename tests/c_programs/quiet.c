/* What belongs to the process before the first call of OpenCL's, and after it. */
#include "common.h"
#include <locale.h>
#include <signal.h>
#include <unistd.h>

static void handler(int number) { (void)number; }

static void show(void)
{
    static const int numbers[] = {SIGINT, SIGPIPE, SIGXFSZ, SIGTERM, SIGCHLD};
    struct sigaction now;
    for (int i = 0; i < 5; i++) {
        sigaction(numbers[i], NULL, &now);
        printf("%d: %d %d\n", numbers[i], now.sa_handler == SIG_DFL, now.sa_handler == handler);
    }
    printf("%s %s\n", setlocale(LC_ALL, NULL), getenv("LC_CTYPE") ? getenv("LC_CTYPE") : "-");
}

int main(int count, char **words)
{
    signal(SIGTERM, handler);
    show();
    begin(0);
    show();
    fflush(stdout);
    if (count > 1)
        raise(SIGINT);
    return 0;
}
