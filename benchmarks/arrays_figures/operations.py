"""The operations that people who know NumPy type most, each as an expression of ``np``, a queue ``q`` (of NumPy: what
stands for one), a matrix ``a`` and a vector ``v`` of float32, integers ``i``, a mask ``m``, a square matrix ``s``."""

OPERATIONS = """
a + a ; a - 2 ; a * v ; a / 3 ; a // 0.3 ; a % 0.3 ; a ** 2 ; -a ; abs(a) ; i & 3 ; i | 3 ; i ^ i ; i << 1 ; i >> 1 ; ~i
a < v ; a <= 0.5 ; a == a ; a != v ; a > v ; a >= v ; m & (v > 0.5) ; divmod(i, 7)
np.sqrt(a) ; np.exp(a) ; np.log(a + 1) ; np.log10(a + 1) ; np.log2(a + 1) ; np.log1p(a) ; np.expm1(a) ; np.sin(a)
np.cos(a) ; np.tan(a) ; np.arcsin(a) ; np.arccos(a) ; np.arctan(a) ; np.arctan2(a, v) ; np.sinh(a) ; np.cosh(a)
np.tanh(a) ; np.hypot(a, v) ; np.floor(a) ; np.ceil(a) ; np.rint(a) ; np.trunc(a) ; np.sign(a) ; np.square(a)
np.reciprocal(a + 1) ; np.maximum(a, v) ; np.minimum(a, v) ; np.fmod(a, 0.3) ; np.cbrt(a) ; np.deg2rad(a)
np.isnan(a) ; np.isfinite(a) ; np.logical_and(a, v) ; np.logical_not(a) ; np.copysign(a, -v) ; np.gcd(i, 12)
np.where(a > 0.5, a, 0) ; np.clip(a, 0.2, 0.8) ; np.round(a, 2) ; np.nan_to_num(a) ; np.add(a, v)
a.sum() ; a.sum(0) ; a.sum(axis=(0, 1)) ; a.prod() ; a.mean() ; a.mean(1) ; a.std() ; a.var(0) ; a.min() ; a.max(1)
m.any() ; m.all() ; a.argmin() ; a.argmax(1) ; np.ptp(a) ; np.count_nonzero(m) ; np.median(v) ; np.linalg.norm(v)
np.average(a, 0) ; np.nansum(a) ; np.nanmean(a) ; np.trace(s) ; np.cumsum(v) ; np.cumsum(a, 1)
np.cumprod(v) ; np.diff(v)
np.sort(v) ; np.argsort(v) ; np.sort(a, 0) ; np.unique(i) ; np.searchsorted(np.sort(v), v)
a @ a.T ; a @ v ; v @ v ; np.dot(s, s) ; np.outer(v, v) ; np.inner(v, v) ; np.vdot(v, v) ; np.matmul(s, s)
a[0] ; a[:, 1] ; a[::2, ::-1] ; a[-3:] ; a[..., None] ; a[1, 2] ; a[a > 0.5] ; a[[0, 2, 1]] ; a[i % 3] ; v[m]
a.T ; a.reshape(-1) ; np.transpose(a) ; np.swapaxes(a, 0, 1) ; np.moveaxis(a, 0, 1) ; np.squeeze(a) ; a.ravel()
np.expand_dims(a, 0) ; np.flip(a, 1) ; np.rot90(a) ; np.broadcast_to(v, a.shape) ; np.split(v, 2) ; a.astype(int)
np.concatenate([a, a]) ; np.stack([a, a]) ; np.vstack([a, a]) ; np.hstack([a, a]) ; np.tile(v, 3) ; np.repeat(v, 2)
np.roll(v, 3) ; np.pad(a, 1) ; np.tril(s) ; np.zeros_like(a) ; np.ones_like(a) ; np.full_like(a, 7) ; a.copy()
q.ones(9) ; q.full(9, 2.5) ; q.arange(9) ; q.linspace(0, 1, 9) ; q.eye(4) ; q.zeros(9) ; np.allclose(a, a)
np.array_equal(a, a) ; np.diagonal(s) ; np.take(v, i % 3) ; np.nonzero(m) ; np.flatnonzero(m)
np.einsum("ij,ij", a, a) ; np.histogram(v) ; np.bincount(i) ; np.percentile(v, 30) ; np.interp(v, v, v)
np.fft.fft(v) ; np.linalg.inv(s) ; np.linalg.solve(s, s) ; np.linalg.svd(s) ; np.convolve(v, v) ; np.gradient(v)
np.cross(a[:, :3], a[:, :3]) ; np.kron(s, s) ; np.meshgrid(v, v) ; np.linalg.det(s)
"""


def operations() -> list[str]:
    """The expressions, in order."""
    return [part.strip() for part in OPERATIONS.replace("\n", " ; ").split(" ; ") if part.strip()]
