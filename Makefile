# Needs Python 3.11 or later with pip and venv, and make. Nothing else.
#
#   make demo             make an environment, install, train customer_support
#   make test             install what the tests need and run them, with coverage
#   make test-llm         the same for the policy llm, which needs torch
#   make test-agents      what the other tests skip for want of TRL
#   make test-frameworks  the adapters with real LangChain, AutoGen and CrewAI
#   make lint             ruff and mypy
#   make docs-test        run the code blocks of README.md and docs/
#   make clean            remove everything that was made, trained models included

PYTHON ?= python3
VENV ?= .venv
AGENTS_VENV ?= .venv-agents
BIN := $(VENV)/bin

# Two BLAS threads are slower than one on matrices this small, and the number of
# threads may change the last bits of a result.
export OPENBLAS_NUM_THREADS ?= 1

INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-llm test-agents test-frameworks lint docs-test clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/agentgym train customer_support

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal --ignore tests/docs -m 'not untraced' --cov --cov-report term
	$(BIN)/python -m pytest -q tests/agents -m untraced

# The language model's arithmetic is tested with one thread, as the number of threads
# may change the last bits of a result.
test-llm: $(VENV)/.installed-llm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist worksteal tests/policies/llm \
	  --cov agentgym.policies.llm --cov-config=/dev/null --cov-fail-under 90 --cov-report term

# In an environment of its own: the other tests must pass without TRL.
test-agents:
	$(MAKE) VENV=$(AGENTS_VENV) EXTRAS=,trl $(AGENTS_VENV)/.installed-llm
	OMP_NUM_THREADS=1 $(AGENTS_VENV)/bin/python -m pytest -q -n auto --dist worksteal -rs \
	  tests/agents/test_trl.py tests/policies/llm/test_engine_trl.py

# Three environments: see constraints-frameworks.txt. Installing them takes a few minutes,
# and so do the tests.
FRAMEWORK_TESTS := -m pytest -q -p no:cacheprovider tests/integrations tests/agents/test_frameworks.py
test-frameworks: $(VENV)-langchain/.installed $(VENV)-crewai/.installed $(VENV)-classic/.installed
	$(VENV)-langchain/bin/python $(FRAMEWORK_TESTS)
	$(VENV)-crewai/bin/python $(FRAMEWORK_TESTS)
	$(VENV)-classic/bin/python $(FRAMEWORK_TESTS)

$(VENV)-langchain/.installed: EXTRAS := langchain,autogen,dev
$(VENV)-crewai/.installed: EXTRAS := crewai,dev
$(VENV)-classic/.installed: EXTRAS := autogen-classic,dev
$(VENV)-%/.installed: pyproject.toml constraints-frameworks.txt
	@echo "Installing AgentGym with $(EXTRAS) into $(@D)"
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check -c constraints-frameworks.txt -e '.[$(EXTRAS)]'
	@touch $@

# With torch: without it, mypy cannot know what the language model is built of.
lint: $(VENV)/.installed-llm
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs-test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal tests/docs

clean:
	rm -rf $(VENV) $(AGENTS_VENV) $(VENV)-langchain $(VENV)-crewai $(VENV)-classic .agentgym .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is not Python 3.11 or later; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing AgentGym into $(VENV)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing AgentGym and what its tests need into $(VENV)"
	@$(INSTALL) -e '.[analysis,api,dev,review]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-llm: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing AgentGym with its language model into $(VENV)"
	@$(INSTALL) -e '.[analysis,api,dev,review,llm$(EXTRAS)]'
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed
