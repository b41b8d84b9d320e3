"""Products of tables larger than a GPU's memory, and what follows from them: covariances, principal components,
regressions, clusters and nearest neighbours.

The rows are read once or a few times, as `evaluate` reads them; what is left is small, and NumPy computes it. A table
is an array of NumPy, a memory map, a file or a path, with the shape `(n, d)`. All functions take the keyword arguments
of `evaluate`, such as `device="cuda"` and `device_memory="2GiB"`; or, with `engine=`, they run on an engine of your
own, and `x` may be one of its resident arrays.

>>> import numpy as np, overshot as ov
>>> x = np.arange(12.0).reshape(6, 2)
>>> ov.matrices.gram(x)
array([[220., 250.],
       [250., 286.]])
"""

from overshot.matrices._clusters import Assignment, Clusters, assign, kmeans
from overshot.matrices._components import PrincipalComponents, pca, project
from overshot.matrices._logistic import LogisticModel, logistic
from overshot.matrices._moments import LinearModel, covariance, gram, linear
from overshot.matrices._neighbors import Neighbors, nearest

__all__ = [
    "Assignment",
    "Clusters",
    "LinearModel",
    "LogisticModel",
    "Neighbors",
    "PrincipalComponents",
    "assign",
    "covariance",
    "gram",
    "kmeans",
    "linear",
    "logistic",
    "nearest",
    "pca",
    "project",
]
