# SPDX-License-Identifier: Apache-2.0
"""Tasks in a process whose address space is bounded, as by spark.executor.pyspark.memory."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS binds on Linux only")

BOUND = """
import resource
def bound(megabytes):
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
def mapped():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * 4096 >> 20
"""
TASK = """
import sparkawait as sa
import pyarrow as pa

@sa.async_function("y bigint")
async def double(row):
    return {"y": 2 * row["x"]}

def run():
    batches = [pa.record_batch([pa.array(range(1000))], ["x"])] * 3
    return sum(batch.num_rows for batch in sa.arrow.ordered_wait(batches, double))
"""


def python(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_function_runs_within_400_megabytes():
    code, out, error = python(f"{BOUND}\nbound(400)\n{TASK}\nprint(run(), mapped())")
    assert code == 0, error
    rows, mapped = map(int, out.split())
    assert rows == 3000
    assert mapped < 400


def test_a_thread_that_cannot_be_started_names_the_setting():
    code, _, error = python(
        f"{BOUND}{TASK}\nimport threading\nthreading.stack_size(256 << 20)\n"
        "bound(mapped() + 100)\nrun()"
    )
    assert code == 1
    assert "no thread could be started for `sparkawait-" in error
    assert "raise spark.executor.pyspark.memory" in error
    assert "cannot join thread" not in error


def test_a_library_that_does_not_fit_names_the_setting():
    code, _, error = python(
        f"{BOUND}\nimport pyarrow.compute\nbound(mapped() + 20)\nimport sparkawait"
    )
    assert code == 1
    last = error.strip().splitlines()[-1]
    # Not an ImportError, which says that sparkawait is missing there.
    assert last.startswith("MemoryError: `sparkawait._core` cannot be loaded")
    assert "raise spark.executor.pyspark.memory" in last


def test_a_library_that_is_missing_where_there_is_room_is_told_as_it_is(tmp_path):
    (tmp_path / "broken.py").write_text("raise ImportError('wrong platform')")
    code, _, error = python(
        f"{BOUND}\nbound(4000)\nimport sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "from sparkawait._worker import address_space\naddress_space.load('broken')"
    )
    assert (code, error.strip().splitlines()[-1]) == (1, "ImportError: wrong platform")


def test_nothing_is_changed_without_a_bound():
    code, out, error = python(
        f"{TASK}\nimport os\nrun()\nprint(os.environ.get('ARROW_DEFAULT_MEMORY_POOL'))"
    )
    assert (code, out.strip()) == (0, "None"), error


LATE = """
def batches():
    yield pa.record_batch([pa.array([1])], ["x"])
    raise MemoryError
list(sa.arrow.ordered_wait(batches(), double))
"""


def test_memory_that_is_missing_later_names_the_setting_where_there_is_a_bound():
    code, _, error = python(f"{BOUND}{TASK}\nbound(4000){LATE}")
    assert code == 1
    last = error.strip().splitlines()[-1]
    assert last.startswith("MemoryError: the task lacks memory: the address space of this Python")
    assert "bounded to 4000 MB" in last
    assert "raise spark.executor.pyspark.memory" in last

    code, _, error = python(f"{TASK}{LATE}")
    assert (code, error.strip().splitlines()[-1]) == (1, "MemoryError")


EXHAUSTED = """
import traceback
kept = []
def batches():
    yield pa.record_batch([pa.array([1])], ["x"])
    for size in (1 << 20, 1 << 12, 1 << 8):
        try:
            while True:
                kept.append(bytearray(size))
        except MemoryError:
            pass
    {fails}
# What OpenBLAS reserves depends on the processor: 130 MB were seen.
bound(mapped() + 280)
try:
    list(sa.arrow.ordered_wait(batches(), double))
except BaseException as error:
    # What Spark does, and waits for ever if it fails.
    said, kind = traceback.format_exc(), type(error).__name__
print(said.strip().splitlines()[-1])
print(kind)
"""


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError()",
        *(
            pytest.param(error, marks=pytest.mark.nightly)
            for error in ("SystemError('NULL')", "ImportError('failed to map')", "OSError(12, 'x')")
        ),
    ],
)
def test_an_error_of_exhausted_memory_can_still_be_told(error):
    code, out, told = python(f"{BOUND}{TASK}{EXHAUSTED.format(fails=f'raise {error}')}")
    assert code == 0, told
    assert out.startswith("MemoryError: the task lacks memory: the address space of this Python")
    assert "raise spark.executor.pyspark.memory" in out


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes are printed since 3.11")
def test_another_error_keeps_its_class_and_says_what_is_missing_beside():
    code, out, told = python(f"{BOUND}{TASK}{EXHAUSTED.format(fails='raise KeyError(7)')}")
    assert code == 0, told
    assert out.startswith("little memory is left, which may be why: the address space of this")
    assert out.splitlines()[-1] == "KeyError"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("sa.exceptions.ElementTimeoutError('late', 'element-timed-out')", "ElementTimeoutError"),
        ("ConnectionResetError(104, 'reset')", "ConnectionResetError"),
    ],
)
def test_an_error_of_the_system_that_is_not_about_memory_keeps_its_class(error, kind):
    little = EXHAUSTED.replace("(1 << 20, 1 << 12, 1 << 8)", "(1 << 20,)")
    code, out, told = python(f"{BOUND}{TASK}\nmade = {error}{little.format(fails='raise made')}")
    assert code == 0, told
    assert out.splitlines()[-1] == kind


def test_an_error_where_nothing_is_missing_stays_as_it_is():
    late = LATE.replace("MemoryError", "OSError(12)")
    code, _, error = python(f"{BOUND}{TASK}\nbound(4000){late}")
    assert (code, error.strip().splitlines()[-1]) == (1, "OSError: 12")


def test_a_thread_is_not_started_that_could_not_say_so():
    # Python would wait for it for ever: it lacks memory before it tells that it runs.
    code, out, error = python(
        f"{BOUND}import threading\nfrom sparkawait._worker import address_space\n"
        "from sparkawait.exceptions import AsyncIOError\n"
        "threading.stack_size(1 << 20)\nbound(mapped() + 6)\naddress_space.fit()\n"
        "began = []\nthread = threading.Thread(target=began.append, args=(1,), name='late')\n"
        "try:\n    address_space.start(thread)\n"
        "except AsyncIOError as error:\n    print(began, thread.ident, error)"
    )
    assert code == 0, error
    assert out.startswith("[] None no thread could be started for `late`: the address space")
