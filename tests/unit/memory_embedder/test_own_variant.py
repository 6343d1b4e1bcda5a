"""A wheel for this machine alone has the kernels that llama.cpp would choose on it."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.repository.test_layout import ROOT

SCRIPT = ROOT / "embedder-service" / "keep-own-variant"
LINES = """\
if (GGML_SYSTEM_ARCH STREQUAL "x86")
        ggml_add_cpu_backend_variant(haswell            SSE42 AVX F16C FMA AVX2 BMI2)
        ggml_add_cpu_backend_variant(icelake            SSE42 AVX F16C FMA AVX2 BMI2 AVX512 AVX512_VBMI AVX512_VNNI)
        ggml_add_cpu_backend_variant(alderlake          SSE42 AVX F16C FMA AVX2 BMI2 AVX_VNNI)
endif()
"""
AVX2 = "fpu sse4_2 avx f16c fma avx2 bmi2"
AVX512 = f"{AVX2} avx512f avx512cd avx512bw avx512dq avx512vl avx512vbmi avx512_vnni"


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (f"flags\t\t: {AVX2}", {"haswell"}),
        (f"flags\t\t: {AVX2} avx_vnni", {"alderlake"}),
        (f"flags\t\t: {AVX512} avx_vnni", {"icelake"}),
        (f"flags\t\t: {AVX512.replace(' avx512vl', '')}", {"haswell"}),
        ("flags\t\t: fpu sse4_2", {"haswell", "icelake", "alderlake"}),
        ("Features\t: fp asimd", {"haswell", "icelake", "alderlake"}),
    ],
)
def test_the_fitting_variant_with_most_features_is_kept_and_all_where_none_fits(
    tmp_path: Path, flags: str, kept: set[str]
) -> None:
    lists, processor = tmp_path / "CMakeLists.txt", tmp_path / "cpuinfo"
    lists.write_text(LINES)
    processor.write_text(f"processor\t: 0\n{flags}\n")
    subprocess.run([SCRIPT, lists, processor], check=True)
    left = lists.read_text()
    assert {name for name in ("haswell", "icelake", "alderlake") if f"({name} " in left} == kept
    assert left.startswith("if (")
    assert left.endswith("endif()\n")


def test_the_script_finds_the_variants_of_the_patched_release() -> None:
    """The lines that the project's own patch leaves are of the form that the script looks for."""
    patch = (ROOT / "embedder-service" / "packaging" / "fewer-processor-variants.patch").read_text()
    assert " ggml_add_cpu_backend_variant(haswell            SSE42 AVX F16C FMA AVX2 BMI2)\n" in patch
