"""The benchmarks run, and write the numbers that others read; no test judges the numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the benchmarks compare with torch")

from benchmarks import _measure as measure

ROOT = Path(__file__).parents[2]

KEYS = {
    "boundary": """
        direct_ns np_add_ns torch_add_out_ns tvm_ffi_ns raw_c_ns ratio_np ratio_torch ratio_tvm_ffi
        ratio_raw_c direct_numpy_ns direct_attribute_ns direct_keyword_ns direct_default_ns
        thousand_ratio_1t million_ratio_1t million_loop_ratio_1t million_reference_ratio_1t
        million_ratio_2t parallel_ratio_2t check_gil_ns checks_of_a_call_ns refuse_dtype_us
        one_numpy_us custom_op_ns
    """,
    "ops": """
        op_ns op_autograd_nograd_ns op_autograd_idle_ns python_autograd_idle_ns torch_add_ns
        aten_add_ns python_custom_op_ns ratio_torch_add ratio_aten_add ratio_python_custom_op
        ratio_nograd ratio_idle first_call_ms first_call_imports_dynamo training_step_mojo_us
        training_step_torch_us ratio_training_step
    """,
    "toolchain": "cold_load_s cold_small_s warm_load_ms warm_load_cpu_ms import_ms import_cpu_ms",
    "memory": """
        handle_ns from_dlpack_ns handle_ratio check_ns copy_ratio_min copy_transposed_ratio_1t
        copy_expanded_ratio_2t call_fallback_us
    """,
    "load": """
        load.ours_ms load.torch_load_ms load.torch_mmap_ms load.ours_ratio_torch_load
        load.ours_ratio_torch_mmap load.ours_ratio_safe_open load.ours_rss load.digest_ratio
    """,
    "coldstart": """
        mojo_total_ms script_total_ms script_load_first_ms prepared_load_first_ms first_ms steady_ms
        ratio_mojo ratio_prepared ratio_steady ratio_call
    """,
    "soak": "soak_steps soak_refusals soak_deleters soak_growth_mib",
    "attention": """
        attention.f32_b1_s16_forward_mojo_us_1t attention.bf16_b2_s128_train_ratio_torch_2t
    """,
    "prepare": """
        prepare_1080p_ratio_1t prepare_1080p_ratio_2t prepare_recipe_ratio prepare_antialias_ratio
        bandwidth_share
    """,
    "pipeline": "stages_ratio end_to_end_ratio chain_ratio movement_ratio",
    "nms": """
        nms_real_ratio nms_1e4_ratio nms_clustered_ratio nms_cv2_ratio nms_torchvision_ratio
        nms_1e5_ms nms_clustered_1e5_ms
    """,
    "filters": "gray_ms_mojo_1t blur_ms_mojo_2t sobel_ratio_torch_1t",
}
# Null where this machine cannot measure them: no peer, no compiler, no second core to itself.
MAY_BE_NULL = (
    "prepare_",
    "tvm_ffi",
    "raw_c",
    "custom_op",
    "_2t",
    "check",
    "ctypes",
    "floor",
    "safe",
    "stages",
    "end_to_end",
    "cv2",
    "vision",
    "real",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_benchmark_writes_its_numbers(name, tmp_path):
    target = tmp_path / "numbers.json"
    few = ["--rounds", "2"] if name == "filters" else ["--quick"]
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", target, *few]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads(target.read_text(encoding="utf-8"))
    assert set(KEYS[name].split()) <= numbers.keys()
    for key, value in numbers.items():
        assert isinstance(value, (int, float)) or any(part in key for part in MAY_BE_NULL), key


def test_take_turns_leaves_out_what_is_missing():
    statements = {"one": "x + 1", "other": "x + 2", "missing": None}
    taken = measure.take_turns(statements, {"x": 1}, quick=True)
    assert taken["missing"] is None
    assert taken["one"].median > 0
    assert measure.ratio(taken["one"], taken["missing"]) is None
    assert measure.ratio(taken["one"], taken["one"]) == 1


def test_setup_of_a_statement_runs_before_each_round():
    seen = []
    setups = {"counted": "seen.append(len(seen))"}
    measure.take_turns({"counted": "1 + 1"}, {"seen": seen}, quick=True, setups=setups)
    assert len(seen) >= measure.QUICK_ROUNDS


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.12345, "0.123"), (12.345, "12.3"), (1234.5, "1 234"), (0, "0")],
)
def test_numbers_are_short(value, text):
    assert measure.number(value) == text


def test_numbers_are_written_flat_and_rounded(tmp_path):
    measure.write(tmp_path / "n.json", {"a": 1.23456, "b": None, "c": 7})
    assert json.loads((tmp_path / "n.json").read_text()) == {"a": 1.235, "b": None, "c": 7}
