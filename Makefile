# Two commands do all the set-up: `make figures` and `make test`. Everything runs in .venv.
PYTHON ?= python3
RUN := .venv/bin/python -m lib.reproduce

.PHONY: figures redraw quick report test test-slow publish lab lint

figures: .venv/ready  ## compute everything anew on a real model, draw, compare with the published tables
	$(RUN) --profile default --fresh

redraw: .venv/ready  ## all figures from the published tables, computing nothing
	$(RUN) --profile published --redraw

quick: .venv/ready  ## all of the machinery on tiny random models, offline
	$(RUN) --profile quick --fresh

report: .venv/ready  ## all executed notebooks, published ones and your own, as one web site in site/
	.venv/bin/python -m lib.run.report

publish: .venv/ready  ## run the published profile and write its tables, figures and executed notebooks
	$(RUN) --profile published --publish

test: .venv/ready  ## in two processes, a file of tests at a time
	.venv/bin/python -m pytest --numprocesses 2 --dist loadfile

test-slow: .venv/ready  ## runs that are killed at random moments, and what else takes long
	.venv/bin/python -m pytest -m slow --numprocesses 2

lint: .venv/ready
	.venv/bin/ruff check

lab: .venv/ready
	.venv/bin/jupyter lab notebooks

.venv/ready: requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	.venv/bin/python -c "import site, pathlib; pathlib.Path(site.getsitepackages()[0], 'compendium.pth').write_text('$(CURDIR)\n')"
	touch $@
