# Needs Python 3.11 or later with pip and venv, and make. Nothing else.
#
#   make demo             make an environment, install, train customer_support
#   make test             install what the tests need and run them, with coverage
#   make test-llm         test the policy llm, which needs torch
#   make test-agents      test TRL, in its own environment
#   make test-frameworks  test the adapters with real LangChain, AutoGen and CrewAI,
#                         in three environments
#   make lint             ruff and mypy
#   make docs-test        run the code blocks of README.md and docs/
#   make clean            remove everything that was made, trained models included

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Two BLAS threads are slower than one on matrices this small, and the number of
# threads may change the last bits of a result.
export OPENBLAS_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1

PYTEST := -m pytest -q -p no:cacheprovider
PARALLEL := -n auto --dist worksteal
DEV := analysis,api,dev,postgres,review
FRAMEWORKS := langchain crewai classic

.PHONY: demo test test-llm test-agents test-frameworks lint docs-test environments clean
.PHONY: $(FRAMEWORKS:%=test-%)
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/agentgym train customer_support

test: $(VENV)/.installed-dev
	$(BIN)/python $(PYTEST) $(PARALLEL) --ignore tests/docs --ignore tests/policies/llm \
	  -m 'not untraced' --cov --cov-report term
	$(BIN)/python $(PYTEST) tests/agents -m untraced

# The language model's arithmetic is tested with one thread, as the number of threads
# may change the last bits of a result.
test-llm: $(VENV)/.installed-llm
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) $(PARALLEL) tests/policies/llm \
	  --cov agentgym.policies.llm --cov-config=/dev/null --cov-fail-under 90 --cov-report term

# In its own environment: the other tests must pass without TRL.
test-agents: $(VENV)-agents/.installed
	OMP_NUM_THREADS=1 $(VENV)-agents/bin/python $(PYTEST) $(PARALLEL) -rs \
	  tests/agents/test_trl.py tests/policies/llm/test_engine_trl.py

test-frameworks: $(FRAMEWORKS:%=test-%)

$(FRAMEWORKS:%=test-%): test-%: $(VENV)-%/.installed
	$(VENV)-$*/bin/python $(PYTEST) tests/integrations tests/agents/test_frameworks.py

# With torch: without it, mypy cannot know what the language model is built of.
lint: $(VENV)/.installed-llm
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs-test: $(VENV)/.installed-dev
	$(BIN)/python $(PYTEST) $(PARALLEL) tests/docs

# The environments of test-agents and test-frameworks.
environments: $(VENV)-agents/.installed $(FRAMEWORKS:%=$(VENV)-%/.installed)

clean:
	rm -rf $(VENV) $(VENV)-agents $(FRAMEWORKS:%=$(VENV)-%) .agentgym .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments -----------------------------------------------------------------------

# Uninstalls `agentgym` first: AgentGym had that name before, and its script with it.
define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "error: $(PYTHON) is not Python 3.11 or later; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
@echo "Installing AgentGym$(1:%=[%]) into $(@D) with $$($(PYTHON) --version)"
@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
@$(@D)/bin/python -m pip uninstall -qq -y agentgym
@$(@D)/bin/python -m pip install -qq -c $(2) -e '.$(1:%=[%])'
@touch $@
endef

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,,constraints.txt)

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(call install,$(DEV),constraints.txt)
	@touch $(VENV)/.installed

$(VENV)/.installed-llm: EXTRAS := $(DEV),llm
$(VENV)/.installed-llm: pyproject.toml constraints.txt
	$(call install,$(EXTRAS),constraints.txt)
	@touch $(VENV)/.installed-dev $(VENV)/.installed

$(VENV)-agents/.installed: EXTRAS := api,dev,trl
$(VENV)-langchain/.installed: EXTRAS := langchain,autogen,dev
$(VENV)-classic/.installed: EXTRAS := autogen-classic,dev
$(VENV)-agents/.installed $(VENV)-langchain/.installed $(VENV)-classic/.installed: \
  pyproject.toml constraints.txt
	$(call install,$(EXTRAS),constraints.txt)

# It wants older versions of rich and others, so it can't share an environment.
$(VENV)-crewai/.installed: EXTRAS := crewai,dev
$(VENV)-crewai/.installed: pyproject.toml constraints-crewai.txt
	$(call install,$(EXTRAS),constraints-crewai.txt)
