"""Starts distributed PyTorch jobs behind a gate, and explains every hang.

Two programs share this name. The launcher (Python >= 3.11) runs at the desk: `cli`, `api`, `report`,
`backends`, `render`, `plan`, `spec`, each using only those after it. The agent (`agent`, Python >= 3.9,
standard library only) travels to every node, and this file travels with it: it must import nothing.
"""

__version__ = "1.0.0"
