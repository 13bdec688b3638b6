"""Execute every notebook in this folder from top to bottom; any error stops it.

The notebooks are left as they are, unless ``--save`` asks for their outputs to be kept.
"""

import argparse
import pathlib

import nbformat
from nbclient import NotebookClient


def main() -> None:
    """Run all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="keep the outputs in the notebooks")
    save = parser.parse_args().save
    folder = pathlib.Path(__file__).parent
    for path in sorted(folder.glob("*.ipynb")):
        print(f"--- {path.name}", flush=True)
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=900, record_timing=False, resources={"metadata": {"path": folder}}
        ).execute()
        if save:
            nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
