"""Files of arrays that declare far more numbers than they have bytes."""

import io
import subprocess
import sys
import zipfile
import zlib

import numpy as np

BLOCK = 1 << 20
LIMIT_S = 120


def npy(shape, dtype="<f4", data=b""):
    """Return an ``.npy`` file that declares a shape, and has these bytes of it."""
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


def add_zeros(archive, name, shape, dtype="<f4"):
    """Add an array of zeros to an open zip file; a GB of them takes a MB there."""
    head = npy(shape, dtype)
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = deflate.compress(head) + deflate.flush(zlib.Z_FULL_FLUSH)
    # After a full flush, the same zeros become the same bytes each time.
    block = deflate.compress(bytes(BLOCK)) + deflate.flush(zlib.Z_FULL_FLUSH)
    end = deflate.compress(bytes(size % BLOCK)) + deflate.flush()
    archive.writestr(f"{name}.npy", begin + block * (size // BLOCK) + end)
    # The end of the archive says what the bytes are.
    added = archive.filelist[-1]
    added.compress_type, added.file_size = zipfile.ZIP_DEFLATED, len(head) + size


# A process begins with the memory of the one that starts it, so a small one does.
STARTER = f"""
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stderr=subprocess.STDOUT, timeout={LIMIT_S})
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def measured(command, folder):
    """Run a command; return its exit code, its words and its largest memory in bytes.

    The memory is that of the largest of the process and those that it waited for.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", STARTER, *map(str, command)],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    *lines, peak = done.stdout.splitlines()
    unit = 1 if sys.platform == "darwin" else 1024
    return done.returncode, "\n".join(lines), int(peak) * unit
