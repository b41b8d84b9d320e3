"""`verify` computes chunks again, and `checksum` hashes outputs."""

import numpy as np
import overshot as ov
import pytest

X = np.arange(100_000) % 1009 * 0.5
TEXT = "y = sqrt(x); t = x > 3; sum(x)"


def hashes(results):
    return [output["blake3"] for output in results.report.to_dict()["outputs"]]


@pytest.mark.parametrize("device", ["cpu", "emulated", "cpu+emulated"])
def test_a_run_is_verified(device):
    plain = ov.evaluate(TEXT, x=X, device=device)
    assert plain.report.to_dict()["verification"] is None
    results = ov.evaluate(TEXT, x=X, device=device, chunk=200_000, verify=1)
    verification = results.report.to_dict()["verification"]
    assert sum(device["rows"] for device in verification["devices"]) == len(X)
    assert verification["fraction"] == 1 and "no difference" in str(results.report)
    assert results["sum(x)"] == plain["sum(x)"]
    np.testing.assert_array_equal(results["y"], plain["y"])


def test_what_is_no_fraction_is_refused():
    for fraction in (-1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="set a fraction from 0 to 1"):
            ov.evaluate("sum(x)", x=X, device="cpu", verify=fraction)


def test_checksums_are_those_of_the_bytes(tmp_path):
    # Two hashes that the reference implementation gives.
    zeros = ov.evaluate("y = 0 * x; sum(x)", x=np.zeros(0), device="cpu", checksum=True)
    assert hashes(zeros) == ["af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"]
    plain = ov.evaluate(TEXT, x=X, device="cpu")
    assert hashes(plain) == [None, None]
    arrays = hashes(ov.evaluate(TEXT, x=X, device="cpu", checksum=True))
    strided = np.empty((len(X), 2))[:, 1]
    with ov.Engine(device="emulated", chunk=100_000) as engine:
        other = engine.evaluate(TEXT, x=X, out={"y": strided}, checksum=True)
        raw = engine.evaluate(TEXT, x=X, out={"y": tmp_path / "y.raw"}, checksum=True)
    assert hashes(other) == arrays == hashes(raw)
    assert ov.evaluate(TEXT, x=X + 1, device="cpu", checksum=True).report.to_dict()["outputs"][0]["blake3"] != arrays[0]


def test_parts_are_verified_and_their_files_have_checksums(tmp_path):
    out = {"y": tmp_path / "y.raw", "t": tmp_path / "t.raw"}
    partials = [ov.run_rows(TEXT, x=X, part=(k, 2), out=out, device="cpu", verify=0.5) for k in range(2)]
    partials[1].merge(partials[0])
    results = partials[1].finish(checksum=True)
    assert hashes(results) == hashes(ov.evaluate(TEXT, x=X, device="cpu", checksum=True))
    assert results.report.to_dict()["verification"]["fraction"] == 0.5
    with pytest.raises(TypeError, match="checksum"):
        ov.run_rows(TEXT, x=X, part=(0, 2), out=out, device="cpu", checksum=True)
