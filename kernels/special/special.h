// Shared by the special functions. Most have no vector form: they are functions of ST that are applied to every lane.
// Coefficients have the digits of a double (K of scalar_math.h).
#include "common/pointwise.h"
#include "common/scalar_math.h"

// The sum of c_k T_k(u), by Clenshaw's recurrence.
#define CHEBYSHEV(table, u) chebyshev_sum(table, (int)(sizeof(table) / sizeof(ST)), u)
static inline ST chebyshev_sum(__constant const ST* c, int n, ST u) {
  ST b1 = 0, b2 = 0;
  for (int k = n - 1; k > 0; k--) {
    const ST b = 2 * u * b1 - b2 + c[k];
    b2 = b1;
    b1 = b;
  }
  return u * b1 - b2 + c[0];
}

// The sum of c_k u^k, by Horner's rule.
#define POLYNOMIAL(table, u) polynomial_sum(table, (int)(sizeof(table) / sizeof(ST)), u)
static inline ST polynomial_sum(__constant const ST* c, int n, ST u) {
  ST s = 0;
  for (int k = n - 1; k >= 0; k--) s = s * u + c[k];
  return s;
}
