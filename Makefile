# incsink: build with PGXS, plus targets that need no PostgreSQL yet.
#
#   make, make install, make installcheck    as for any PGXS extension
#   make check     everything on a private server in a temporary folder
#   make demo      the same for a demonstration, see README.md
#   make bench     the numbers, against what a user would do instead (20 minutes)
#   make model     a model of the design, checked by spin (10 minutes)
#   make crash     kills at every point under load, ROUNDS=200 of them (20 minutes)
#   make interop   real receivers: ClickHouse, PostgreSQL, nginx (10 minutes)
#   make mutants   planted bugs, each of which a test must catch (30 minutes)
#   make matrix    make check on PostgreSQL 15, 17, 18 and 19 (as root; an hour)
#   make lint      every commit and I/O call has an injection point beside it
#   make setup     installs what building and testing need (apt-get, as root)
#
# INJECT=1 compiles the injection points in (never for production).

PG_CONFIG ?= pg_config

# These targets bring their own environment: they run where pg_config is still
# missing, and PGXS defines "check" as an error.
OWN_TARGETS = bench check crash demo interop lint matrix model mutants setup
.PHONY: $(OWN_TARGETS)

ifneq (,$(filter $(OWN_TARGETS),$(MAKECMDGOALS)))

# Only what the user named: the scripts find the newest server by themselves.
ifneq (,$(filter command environment override,$(firstword $(origin PG_CONFIG))))
export PG_CONFIG
else
unexport PG_CONFIG
endif

check: setup
	+@test/check

demo: setup
	+@test/demo/run

bench: setup
	+@test/bench/run

model:
	@test/setup spin
	+@test/model/run

# ROUNDS=n, SEED=n.
crash: setup
	+@test/crash/run

# RECEIVERS="name name" picks.
interop: setup
	+@test/interop/run $(RECEIVERS)

# MUTANTS="name name" picks.
mutants: setup
	+@test/mutants/run $(MUTANTS)

# MATRIX="15 17" picks.
matrix: setup
	+@test/matrix $(MATRIX)

setup:
	@test/setup

lint:
	@test/check-injection-points

OTHER_GOALS = $(filter-out $(OWN_TARGETS),$(MAKECMDGOALS))
ifneq (,$(OTHER_GOALS))
.PHONY: $(OTHER_GOALS)
$(OTHER_GOALS):
	+@$(MAKE) $@
endif

else

MODULE_big = incsink
EXTENSION = incsink

# VPATH is set when the build folder is not the source folder.
SOURCE_DIR := $(patsubst %/,%,$(or $(VPATH),$(dir $(firstword $(MAKEFILE_LIST)))))
sources = $(sort $(patsubst $(SOURCE_DIR)/%,%,$(wildcard $(addprefix $(SOURCE_DIR)/,$(1)))))

OBJS = $(patsubst %.c,%.o,$(call sources,src/*.c src/*/*.c))
DATA = $(call sources,sql/incsink--*.sql)

REGRESS = $(patsubst sql/%.sql,%,$(filter-out sql/incsink--%,$(call sources,sql/*.sql)))
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(call sources,test/isolation/specs/*.spec))
ISOLATION_OPTS = --inputdir=$(SOURCE_DIR)/test/isolation

# The control file is the one place of the version.
EXTENSION_VERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(SOURCE_DIR)/incsink.control)
PG_CPPFLAGS = -I$(SOURCE_DIR)/src -DINCSINK_VERSION='"$(EXTENSION_VERSION)"'
ifdef INJECT
PG_CPPFLAGS += -DINCSINK_INJECT
endif

# PostgreSQL's own headers need the last three.
WERROR ?= -Werror
PG_CFLAGS = -Wall -Wextra $(WERROR) -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
# A server built by gcc hands its options and attributes to clang, too.
ifneq (,$(findstring clang,$(CC)))
PG_CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes
endif

SHLIB_LINK = -lcurl -lzstd -lz
# Bitcode is of no use here; Makefile.global would say yes.
override with_llvm := $(if $(filter command,$(firstword $(origin with_llvm))),$(with_llvm),no)

EXTRA_CLEAN = build tmp_check tmp_check-* .build-id

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq (,$(wildcard $(PGXS)))
$(error $(PG_CONFIG) finds no server development files; "make setup" as root installs them, or set PG_CONFIG)
endif

# Objects of another server version or with other options are not reused.
BUILD_ID := $(shell $(PG_CONFIG) --version) $(CC) $(INJECT) $(COPT) $(EXTENSION_VERSION)
ifneq ($(strip $(BUILD_ID)),$(strip $(shell cat .build-id 2>/dev/null)))
ifeq (,$(filter clean distclean,$(MAKECMDGOALS)))
$(shell echo '$(strip $(BUILD_ID))' > .build-id)
endif
endif

include $(PGXS)

# PGXS knows no header dependencies.
$(OBJS): $(addprefix $(SOURCE_DIR)/,$(call sources,src/*.h src/*/*.h)) $(wildcard .build-id)

# The collector of the tests is the receiver in examples, too.
.PHONY: collector
collector: build/collector
build/collector: $(SOURCE_DIR)/test/collector/collector.c
	@mkdir -p build
	$(CC) -O2 -g -std=gnu11 -Wall -Wextra -Werror -o $@ $<

endif
