"""Builds the CPU kernel where there is a C++ compiler; without one midfill installs all the same, and uses torch."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = Extension(
    "inference.backends.cpu._decode",
    sources=["inference/backends/cpu/kernel/decode.cpp"],
    depends=sorted(map(str, Path("inference/backends/cpu/kernel").glob("*.h"))),
    language="c++",
    extra_compile_args=[
        *("-std=c++17", "-O3", "-g0", "-pthread", "-fvisibility=hidden"),
        "-ffp-contract=off",  # fused where the source says so and nowhere else: the same bits from every instantiation
        *("-Wno-psabi", "-Wno-uninitialized"),  # vectors never cross the ABI; GCC's own headers (bug 105593)
    ],
    extra_link_args=["-pthread"],
    optional=True,
)


class BuildLibrary(build_ext):
    """Builds extensions that are loaded through ctypes: libraries, with nothing for Python to import."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """What the source exports, and no module's initialisation."""
        return list(ext.export_symbols)


setup(ext_modules=[KERNEL], cmdclass={"build_ext": BuildLibrary})
