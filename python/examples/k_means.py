"""The colours of a picture: k-means of its pixels, and each pixel in the nearest of these colours.

python python/examples/k_means.py [SIDE]
"""

import sys

import numpy as np
import overshot as ov

SIDE, COLOURS = int(sys.argv[1]) if len(sys.argv) > 1 else 700, 4

# A picture of four discs on each other, with noise: a pixel is a row of three bytes.
random = np.random.default_rng(1)
palette = np.array([[20, 30, 60], [200, 60, 40], [240, 200, 60], [90, 180, 120]])
place = np.linspace(-1, 1, SIDE)
ring = np.digitize(np.hypot(place, place[:, None]), [0.4, 0.7, 1.0])
picture = np.clip(palette[ring] + random.normal(0, 8, (SIDE, SIDE, 3)), 0, 255).astype("u1")
pixels = picture.reshape(-1, 3)

found = ov.matrices.kmeans(pixels, COLOURS, seed=2, labels=True)
print(f"{len(pixels):,} pixels, {found.iterations} iterations, deviation {np.sqrt(found.inertia / pixels.size):.2f}")
for center, count in sorted(zip(found.centers.round().tolist(), found.counts.tolist(), strict=True)):
    print(center, count)

# The colours are found but for the noise, and every pixel has that of its ring.
order = np.argsort(((found.centers[:, None] - palette) ** 2).sum(axis=2), axis=0)[0]
np.testing.assert_allclose(found.centers[order], palette, atol=1)
np.testing.assert_array_equal(found.counts[order], np.bincount(ring.reshape(-1)))
np.testing.assert_array_equal(order[ring.reshape(-1)], found.labels)
assert found.converged

# The labels of another picture, and how far its colours are.
other = ov.matrices.assign(pixels[::-1].copy(), found.centers)
np.testing.assert_array_equal(other.labels, found.labels[::-1])
print(f"the farthest pixel is {other.distances.max():.0f} away from its colour")
