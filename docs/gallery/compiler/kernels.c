/* Four small kernels. Prints the milliseconds that they take. */
#include <math.h>
#include <stdio.h>
#include <time.h>

enum { SIZE = 160, BODIES = 300, LIMIT = 400000 };

static double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];
static char composite[LIMIT];

static void multiply(void) {
  for (int i = 0; i < SIZE; i++)
    for (int j = 0; j < SIZE; j++) {
      double sum = 0.0;
      for (int k = 0; k < SIZE; k++) sum += a[i][k] * b[j][k];
      c[i][j] = sum;
    }
}

static double square(double x) { return x * x; }

static double attract(void) {
  double energy = 0.0;
  for (int i = 0; i < BODIES; i++)
    for (int j = 0; j < BODIES; j++)
      energy += 1.0 / sqrt(1.0 + square(a[0][i % SIZE] - b[0][j % SIZE]) + square(i - j));
  return energy;
}

static int sieve(void) {
  int primes = 0;
  for (int i = 2; i < LIMIT; i++) composite[i] = 0;
  for (int i = 2; i < LIMIT; i++) {
    if (composite[i]) continue;
    primes++;
    for (int j = 2 * i; j < LIMIT; j += i) composite[j] = 1;
  }
  return primes;
}

static unsigned collatz(void) {
  unsigned longest = 0;
  for (unsigned start = 1; start < 30000; start++) {
    unsigned steps = 0;
    for (unsigned n = start; n != 1; n = n % 2 ? 3 * n + 1 : n / 2) steps++;
    if (steps > longest) longest = steps;
  }
  return longest;
}

int main(void) {
  for (int i = 0; i < SIZE; i++)
    for (int j = 0; j < SIZE; j++) {
      a[i][j] = sin(i + j);
      b[i][j] = cos(i - j);
    }
  struct timespec begin, end;
  volatile double used = 0.0;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  for (int round = 0; round < 8; round++) {
    multiply();
    used += c[round][round] + attract() + sieve() + collatz();
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  printf("%.3f\n", 1e3 * (end.tv_sec - begin.tv_sec) + 1e-6 * (end.tv_nsec - begin.tv_nsec));
  return 0;
}
