"""K-means, principal components and ridge regression of Overshot, of scikit-learn, and by hand with PyTorch and CuPy,
which copy a chunk of rows at a time to the GPU.

    python3 benches/peers/algorithms.py [--size 2GiB] [--devices cuda] [--device-memory 1GiB] [--runs 3]

All work on one table of `f32` in ordinary memory, in turn, and their results are compared. Each figure is the median
in seconds; scikit-learn runs once. A peer that is not installed is left out, and so are those by hand without a GPU.
"""

import argparse
import json
import statistics
import time

import numpy as np
import overshot as ov
from common import NotRun, load

#: The rows that peers copy at a time.
CHUNK = 65_536
COMPONENTS = 8


class ScikitLearn:
    """With the algorithms that are Overshot's, too."""

    def __init__(self, options):
        self.iterations = options.iterations
        modules = ("cluster", "decomposition", "linear_model")
        self.cluster, self.decomposition, self.linear_model = (load(f"sklearn.{name}") for name in modules)

    def kmeans(self, x, start):
        how = {"n_init": 1, "max_iter": self.iterations, "tol": 0.0, "algorithm": "lloyd", "copy_x": False}
        return self.cluster.KMeans(len(start), init=start, **how).fit(x).inertia_

    def pca(self, x):
        return self.decomposition.PCA(COMPONENTS, svd_solver="covariance_eigh").fit(x).explained_variance_

    def ridge(self, x, t):
        return self.linear_model.Ridge(1.0, solver="cholesky").fit(x, t).coef_


class ByHand:
    """What a user writes with PyTorch or CuPy: loops over chunks that are copied to the GPU."""

    def __init__(self, options, copy, zeros, on_host):
        self.iterations, self.copy, self.zeros, self.on_host = options.iterations, copy, zeros, on_host

    def chunks(self, x):
        return (self.copy(x[row : row + CHUNK]) for row in range(0, len(x), CHUNK))

    def kmeans(self, x, start):
        centers = self.copy(start)
        for step in range(self.iterations + 1):
            norms, inertia = (centers * centers).sum(1), 0.0
            sums, counts = self.zeros((len(start), x.shape[1])), self.zeros((len(start),))
            for rows in self.chunks(x):
                distances = norms - 2 * (rows @ centers.T)
                labels = distances.argmin(1)
                inertia += float(self.least(distances).sum() + (rows * rows).sum())
                self.add(sums, labels, rows)
                self.add(counts, labels, self.ones(len(rows)))
            if step < self.iterations:
                centers = sums / counts[:, None].clip(1)
        return inertia

    def moments(self, x, t):
        """The means and the products of all columns, of which the last one is `t`."""
        size = x.shape[1] + 1
        mean, products = self.zeros((size,)), self.zeros((size, size))
        whole = lambda: zip(self.chunks(x), self.chunks(t), strict=True)
        for rows, target in whole():
            mean[:-1] += rows.sum(0)
            mean[-1] += target.sum()
        mean /= len(x)
        for rows, target in whole():
            rows = rows - mean[:-1]
            target = target - mean[-1]
            products[:-1, :-1] += rows.T @ rows
            products[:-1, -1] += rows.T @ target
        return self.on_host(products).astype("f8")

    def pca(self, x):
        covariance = self.moments(x, np.zeros(len(x), x.dtype))[:-1, :-1] / (len(x) - 1)
        return np.linalg.eigvalsh(covariance)[::-1][:COMPONENTS]

    def ridge(self, x, t):
        products = self.moments(x, t)
        return np.linalg.solve(products[:-1, :-1] + np.eye(len(products) - 1), products[:-1, -1])


class PyTorch(ByHand):
    def __init__(self, options):
        torch = load("torch")
        if not torch.cuda.is_available():
            raise NotRun("no GPU")
        copy = lambda array: torch.from_numpy(array).to("cuda")
        zeros = lambda shape: torch.zeros(shape, dtype=torch.float32, device="cuda")
        super().__init__(options, copy, zeros, lambda array: array.cpu().numpy())
        self.ones = lambda count: torch.ones(count, device="cuda")
        self.least = lambda distances: distances.amin(1)
        self.add = lambda sums, labels, rows: sums.index_add_(0, labels, rows)


class CuPy(ByHand):
    def __init__(self, options):
        cupy = load("cupy")
        if not cupy.is_available():
            raise NotRun("no GPU")
        super().__init__(options, cupy.asarray, lambda shape: cupy.zeros(shape, "f4"), cupy.asnumpy)
        self.ones = lambda count: cupy.ones(count, "f4")
        self.least = lambda distances: distances.min(1)
        self.add = cupy.add.at


class Overshot:
    def __init__(self, options, device, precision):
        limits = {"device_memory": options.device_memory} if device != "cpu" else {}
        self.engine, self.precision = ov.Engine(device=device, **limits), precision
        self.iterations = options.iterations

    def kmeans(self, x, start):
        how = {"engine": self.engine, "precision": self.precision}
        return ov.matrices.kmeans(x, start.astype("f8"), iterations=self.iterations, **how).inertia

    def pca(self, x):
        return ov.matrices.pca(x, COMPONENTS, method="exact", engine=self.engine).variance

    def ridge(self, x, t):
        return ov.matrices.linear(x, t, ridge=1.0, engine=self.engine).weights


def peers(options):
    found = {}
    for device in options.devices.split(","):
        found[f"Overshot, {device}"] = Overshot(options, device, "full")
        if device.startswith("cuda"):
            # Of these, k-means alone multiplies as f32.
            found[f"Overshot, {device}, k-means with TF32"] = Overshot(options, device, "tf32")
    for name, peer in {"PyTorch by hand": PyTorch, "CuPy by hand": CuPy, "scikit-learn": ScikitLearn}.items():
        try:
            found[name] = peer(options)
        except NotRun as reason:
            print(json.dumps({"peer": name, "not_run": str(reason)}), flush=True)
    return found


def table(size, columns, centres):
    """Rows around points, a target that depends on them, and a row near each of some points."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(centres, columns)).astype("f4")
    x = np.empty((size // columns // 4, columns), "f4")
    for row in range(0, len(x), CHUNK):
        part = x[row : row + CHUNK]
        part[...] = rng.standard_normal(part.shape, "f4") * 0.5 + points[rng.integers(centres, size=len(part))]
    weights = rng.normal(size=columns).astype("f4")
    return x, x @ weights + 3, (points + 0.1).astype("f4")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2GiB")
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--centres", type=int, default=2048)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--devices", default="cuda,cpu")
    parser.add_argument("--device-memory", default="1GiB")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    size = int(float(options.size.removesuffix("GiB")) * 2**30)
    x, t, start = table(size, options.columns, options.centres)
    everyone = peers(options)
    jobs = {
        "k-means": (lambda peer: peer.kmeans(x, start), 1e-3),
        "principal components": (lambda peer: peer.pca(x), 1e-3),
        "ridge regression": (lambda peer: peer.ridge(x, t), 1e-2),
    }
    for job, (run, tolerance) in jobs.items():
        seconds, values = {name: [] for name in everyone}, {}
        for turn in range(options.runs + 1):
            for name, peer in everyone.items():
                if isinstance(peer, ScikitLearn) and turn > 0:
                    continue
                begin = time.perf_counter()
                values[name] = run(peer)
                # The first run of a GPU compiles.
                if turn > 0 or isinstance(peer, ScikitLearn):
                    seconds[name].append(time.perf_counter() - begin)
        right = next(iter(values.values()))
        for name, value in values.items():
            np.testing.assert_allclose(value, right, rtol=tolerance, atol=tolerance, err_msg=f"{job}, {name}")
        medians = {name: round(statistics.median(own), 3) for name, own in seconds.items()}
        line = {"job": job, "bytes": x.nbytes, "columns": options.columns, "seconds": medians}
        if job == "k-means":
            line |= {"centres": options.centres, "iterations": options.iterations}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
