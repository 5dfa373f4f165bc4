"""The site: ``make docs``. Pages are the Markdown files beside this one, which also read well on a forge."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "tests")]
os.environ["PYTHONPATH"] = str(HERE.parent / "src")
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # the same numbers on every machine

import api_page  # noqa: E402
import commands_page  # noqa: E402

import mvplda  # noqa: E402

project, author = "mvplda", "the mvplda maintainers"
version = release = mvplda.__version__
language = "en_GB"
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
default_role = "py:obj"
show_warning_types = True
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"

html_theme = "pydata_sphinx_theme"
html_title = "mvplda"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_favicon = "_static/logo.svg"
html_theme_options: dict[str, Any] = {
    "logo": {
        "text": f"mvplda {version}",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
        "alt_text": "mvplda: start page",
    },
    "navbar_align": "left",
    "header_links_before_dropdown": 4,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
}
html_context = {"default_mode": "auto"}
if source := os.environ.get(
    "SOURCE_URL", ""
):  # where the site is built for a forge, links to source and issues
    html_theme_options["external_links"] = [
        {"name": "Source", "url": source},
        {"name": "Issues", "url": f"{source}/issues"},
    ]
toc_object_entries_show_parents = "hide"
html_sidebars = {"index": [], "whats-new": []}
copyright = "the mvplda maintainers, Apache-2.0"
mathjax_path = "mathjax/tex-svg-full.js"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("mvplda",),
    "reference_url": {"mvplda": None},
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_memory": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "min_reported_time": 1000,
    "write_computation_times": False,
    "show_signature": False,
    "default_thumb_file": str(HERE / "model.svg"),
}

FORMULAS = {  # objects that are mathematics, and the section that derives them
    "mvplda.MultiviewPLDA": "1. Words and model",
    "mvplda.PLDA": "1. Words and model",
    "mvplda.SufficientStatistics": "2. Statistics",
    "mvplda.Accumulator": "2. Statistics",
    "mvplda.Profiles": "9. Verification",
    "mvplda.Question": "9. Verification",
}
NOT_OURS = "BaseEstimator,TransformerMixin,Exception,dict,Mapping,tuple,object"
REFERENCE = HERE / "reference"
EXTENSION_MEMBERS = {
    "COMPONENTS", "FITTED", "KIND", "NAME", "NEEDS_LABELS", "STORED_KEYS",
    "check_state", "components", "from_state", "get_state", "known_names", "nuisance_views", "pair_terms",
    "pair_terms_with_known", "project", "published_em", "published_pair_terms", "training_classes",
    "typical_evidence", "typical_vectors", "views_", "width_in", "width_out", "with_ranks",
}  # fmt: skip
"""Members that only authors of scorers and calibrators need; pages of classes to use do not list them."""
EXTENSION_POINTS = {"mvplda.calibration.Calibrator"}
"""Pages of base classes, which list these members."""


def homes() -> dict[tuple[str, str], str]:
    """(module, name) -> the page of that object: the place where it is named first."""
    found: dict[tuple[str, str], str] = {}
    seen: dict[int, str] = {}
    for place in api_page.MODULES:
        module = importlib.import_module(place)
        for name in api_page.public_names(module):
            value = getattr(module, name)
            whole = inspect.isclass(value) or inspect.isroutine(value)
            page = f"{place}.{name}"
            found[place, name] = seen.setdefault(id(value), page) if whole else page
    return found


def write_reference(app: Any) -> None:
    """Write one page per public object, with the examples that use it, and the page of commands."""
    REFERENCE.mkdir(exist_ok=True)
    (REFERENCE / "commands.md").write_text(commands_page.page(), encoding="utf-8")
    wanted = set(homes().values())
    for old in REFERENCE.glob("*.rst"):
        if old.stem not in wanted:
            old.unlink()
    for page in sorted(wanted):
        place, _, name = page.rpartition(".")
        value = getattr(importlib.import_module(place), name)
        if inspect.isclass(value) and type(value).__name__ != "GenericAlias":
            body = f".. autoclass:: {name}\n   :members:\n   :inherited-members: {NOT_OURS}\n"
            if page not in EXTENSION_POINTS:
                body += f"   :exclude-members: {', '.join(sorted(EXTENSION_MEMBERS))}\n"
        elif inspect.isroutine(value):
            body = f".. autofunction:: {name}\n"
        else:
            body = f".. py:data:: {name}\n\n   {api_page.first_sentence(importlib.import_module(place), name)}.\n"
        text = f"{name}\n{'=' * len(name)}\n\n.. currentmodule:: {place}\n\n{body}"
        if page in FORMULAS:
            text += f"\n.. seealso:: :doc:`The mathematics </math>`, section {FORMULAS[page]}\n"
        text += f"\n.. minigallery:: {page}\n   :add-heading: Examples that use it\n"
        target = REFERENCE / f"{page}.rst"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


def link_names(app: Any, docname: str, source: list[str]) -> None:
    """Append the list of public names to their page, each with a link; keep other links within the site."""
    if docname == "api":
        pages, place, lines = homes(), "", [source[0]]
        for line in api_page.listing().splitlines():
            place = line[3:] if line.startswith("## mvplda") else place
            if (found := re.match(r"\| `(\w+)` \|", line)) and (place, found[1]) in pages:
                line = line.replace(
                    f"`{found[1]}`", f"[`{found[1]}`](reference/{pages[place, found[1]]}.rst)", 1
                )
            lines.append(line)
        trees = []
        for place in api_page.MODULES:
            own = sorted(page for page in set(pages.values()) if page.rpartition(".")[0] == place)
            rows = "\n".join(f"reference/{page}" for page in own)
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {place}\n\n{rows}\n```\n")
        source[0] = "\n".join(lines) + "\n\n" + "\n".join(trees)
    source[0] = re.sub(r"\]\(\.\./(?:docs/)?CONTRIBUTING\.md", "](contributing.md", source[0])
    source[0] = re.sub(r"\]\(\.\./CHANGELOG\.md", "](whats-new.md", source[0])
    source[0] = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](gallery/\1.rst)", source[0])
    source[0] = source[0].replace("](../examples)", "](gallery/index.rst)")
    source[0] = re.sub(
        r"(?<!!)\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", source[0]
    )  # what lies in the repository only


def link_included(app: Any, path: Any, parent: str, source: list[str]) -> None:
    """Files of the repository's root name pages as docs/page.md; other folders are in the repository only."""
    source[0] = source[0].replace("](docs/", "](")
    source[0] = re.sub(r"\[([^\]]*)\]\(tools/[^)]*\)", r"\1", source[0])


def list_fields(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Paragraphs of "name : what it is" become lists, where a docstring has no sections."""
    if any(re.fullmatch(r"-{3,}", line) for line in lines):
        return
    found: list[str] = []
    for part in "\n".join(lines).split("\n\n"):
        rows = part.split("\n")
        if re.match(r"[\w*, ]+ : ", rows[0]) and all(
            re.match(r"[\w*, ]+ : | {4}", row) for row in rows if row
        ):
            rows = [
                re.sub(r"^([\w*, ]+) : ", lambda m: f"* **{m[1].replace('*', '')}**: ", row)
                for row in rows
            ]
            rows = [row if row.startswith("*") else "  " + row.strip() for row in rows]
        found += [*rows, ""]
    lines[:] = found


def leave_out(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """What scikit-learn gives to every estimator is told there."""
    return True if (getattr(value, "__module__", None) or "").startswith("sklearn.") else None


def copy_mathjax(app: Any) -> None:
    """MathJax out of a package: one file, nothing from elsewhere."""
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "the site wants the packages of the group docs: pip install --group docs"
        )
    target = Path(app.outdir) / "_static" / mathjax_path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(spec.origin).parent / "static" / "mathjax" / target.name, target)


def setup(app: Any) -> None:
    app.connect("builder-inited", write_reference, priority=100)
    app.connect("builder-inited", copy_mathjax)
    app.connect("source-read", link_names)
    app.connect("include-read", link_included)
    app.connect("autodoc-process-docstring", list_fields, priority=10)
    app.connect("autodoc-skip-member", leave_out)
