# SPDX-License-Identifier: Apache-2.0
#
# The front door: every target but install enters the toolbox (tests/lab/enter) by itself, so they
# work the same on a bare Debian machine and inside. V=1 shows the commands.

ENTER := tests/lab/enter --
# HOST=1 runs on the machine itself, where nothing has set what the toolbox has set.
BARE := env PYTHONPATH=tests:daemon:policies
K ?= 6.18
# Three processes run the tests, for many of them wait: those of a VM, and of a file, stay in one. LANES= is one process.
LANES ?= -n 3 --dist loadgroup
DEFAULT := not debug and not intel and not long and not fleet
V ?= 0

ifneq ($(V),1)
MAKEFLAGS += --no-print-directory
Q := @
say = @echo '  $(1)'
endif

# Folders that may not exist in a source package are simply not looked at.
C_SOURCES = $(shell find kernel-helper daemon/gangd/bpf/csrc tests/lab/guests/flat tests/lab/clock tests/bench \
	tests/vm/checks/plant \
	\( -name '*.[ch]' -o -name '*.bpf.c' \) ! -name 'vmlinux*.h' ! -name '*.skel.h' ! -name '*.mod.c' 2>/dev/null)
SHELL_SOURCES = .ci/run tests/lab/chroot tests/lab/enter tests/lab/run tests/lab/toolbox tests/lab/root/init \
	tests/lab/root/bare tests/lab/root/runner tests/host/fuzz/run tests/host/fleet/build daemon/completion/gangctl

.DEFAULT_GOAL := help
.PHONY: help toolbox build module deb rpm install uninstall man counters schema monitoring lint unit test test-long test-debug test-intel fleet nightly sim demo \
	bench-kernel bench-adaptive bench-seeds bench-tile bench-noise publish bench-idle bench-rows bench-harm fuzz soak lab-shell clean distclean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

toolbox: ## make the Debian tree everything else runs in (build/lab/root)
	$(Q)tests/lab/toolbox

build: gangd.egg-info ## compile the extension and the BPF objects in place
	$(call say,BUILD    extension and BPF objects)
	$(Q)$(ENTER) python3 setup.py --quiet build_ext --inplace

# The entry points, by which policies are found.
gangd.egg-info: setup.py
	$(Q)$(ENTER) python3 setup.py --quiet egg_info
	$(Q)touch $@

module: ## compile gang.ko for every kernel of tests/lab/kernels.toml
	$(call say,BUILD    gang.ko)
	$(Q)$(ENTER) python3 -m lab.kmod

deb: ## gangd_*.deb and gangd-dkms_*.deb in build/deb
	$(call say,DEB      build/deb)
	$(Q)$(ENTER) python3 -m lab.deb

rpm: ## gangd-*.rpm and gangd-dkms-*.rpm in build/rpm, to check systemd/rpm/gangd.spec
	$(call say,RPM      build/rpm)
	$(Q)$(ENTER) python3 -m lab.rpm

# The paths about which distributions differ (docs/packaging.md). The defaults are Debian's; APPARMORDIR= leaves the
# profile out. pip asks Python for PYTHONDIR, too; DEB_PYTHON_INSTALL_LAYOUT moves both out of /usr/local on Debian.
APPARMORDIR ?= /etc/apparmor.d
ZSHDIR ?= /usr/share/zsh/vendor-completions
PYTHON := DEB_PYTHON_INSTALL_LAYOUT=deb python3
PYTHONDIR = $(shell $(PYTHON) -c \
	'import sysconfig; print(sysconfig.get_path("platlib", vars={"base": "/usr", "platbase": "/usr"}))')

# What pip installs; an older version's files would stay beside those of another.
PYTHON_FILES = $(addprefix '$(DESTDIR)$(PYTHONDIR)'/,gangd gang_policies gangd-*.dist-info)

# The one target that uses the machine it is called on: this is how gangd gets onto a real host.
install: ## install below DESTDIR with this machine's pip, e.g. make install DESTDIR=/
	$(if $(DESTDIR),,$(error install needs DESTDIR=, the directory to install below))
	$(call say,INSTALL  $(DESTDIR))
	$(Q)rm -rf build/lib* build/bdist* $(PYTHON_FILES)
	$(Q)$(PYTHON) -m pip install --quiet --root-user-action=ignore --break-system-packages \
		--no-deps --no-build-isolation --no-index --ignore-installed --root '$(DESTDIR)' --prefix /usr .
	$(Q)$(call place,gangd*.service,usr/lib/systemd/system)
	$(Q)$(call place,sysusers/*,usr/lib/sysusers.d)
	$(Q)$(if $(APPARMORDIR),$(call place,apparmor/*,$(APPARMORDIR)))
	$(Q)$(call place,../docs/*.md,usr/share/doc/gangd)
	$(Q)$(call place,../docs/gangd.schema.json,usr/share/gangd)
	$(Q)$(call place,../docs/decisions/*.md,usr/share/doc/gangd/decisions)
	$(Q)$(call place,../docs/gangd.toml,usr/share/doc/gangd/examples)
	$(Q)$(call place,../docs/monitoring/*.md,usr/share/doc/gangd/monitoring)
	$(Q)$(call place,../docs/monitoring/*.png,usr/share/doc/gangd/monitoring)
	$(Q)$(call place,../docs/monitoring/runbooks/*.md,usr/share/doc/gangd/monitoring/runbooks)
	$(Q)$(call place,../docs/monitoring/*.rules.yml,usr/share/doc/gangd/examples/monitoring)
	$(Q)$(call place,../docs/monitoring/grafana/*.json,usr/share/doc/gangd/examples/monitoring/grafana)
	$(Q)$(call place,org.gangd.*.conf,usr/share/dbus-1/system.d)
	$(Q)$(call place,org.gangd.*.service,usr/share/dbus-1/system-services)
	$(Q)$(call place,org.gangd.*.policy,usr/share/polkit-1/actions)
	$(Q)$(call place,../docs/org.gangd.*.xml,usr/share/dbus-1/interfaces)
	$(Q)install -D -m 0644 daemon/completion/gangctl '$(DESTDIR)/usr/share/bash-completion/completions/gangctl'
	$(Q)install -D -m 0644 daemon/completion/_gangctl '$(DESTDIR)$(ZSHDIR)/_gangctl'
	$(Q)for page in docs/*.[1-8]; do \
		install -D -m 0644 "$$page" '$(DESTDIR)/usr/share/man/man'"$${page##*.}/$${page##*/}" || exit 1; \
	done

uninstall: ## remove what install put below DESTDIR; stop gangd before, so that the host is as it was
	$(if $(DESTDIR),,$(error uninstall needs DESTDIR=, the directory it is installed below))
	$(call say,REMOVE   $(DESTDIR))
	$(Q)rm -rf $(PYTHON_FILES) $(addprefix '$(DESTDIR)'/usr/share/,doc/gangd gangd man/man[1-8]/gangctl.1 \
		man/man[1-8]/gangd*.[1-8] man/man4/gang.4 dbus-1/*/org.gangd.* polkit-1/actions/org.gangd.* \
		bash-completion/completions/gangctl) '$(DESTDIR)$(ZSHDIR)/_gangctl' $(addprefix '$(DESTDIR)'/, \
		usr/bin/gangd usr/bin/gangctl usr/bin/gangd-exporter usr/lib/systemd/system/gangd*.service \
		usr/lib/sysusers.d/gangd*.conf) $(if $(APPARMORDIR),'$(DESTDIR)$(APPARMORDIR)/gangd')

# $(call place,PATTERNS,DIR): copy what matches in systemd/ to DIR.
place = for file in $(addprefix systemd/,$(1)); do \
	[ -e "$$file" ] || continue; \
	install -D -m 0644 "$$file" '$(DESTDIR)/$(2)'/$${file\#\#*/} || exit 1; \
done

counters: ## write daemon/gangd/model/counters.py and their rows of docs/metrics.md anew, from gang_abi.h
	$(call say,COUNTERS daemon/gangd/model/counters.py)
	$(Q)$(ENTER) python3 -m docs.tools.counters

schema: ## write docs/gangd.schema.json anew, the JSON schema of all documents
	$(call say,SCHEMA   docs/gangd.schema.json)
	$(Q)$(ENTER) python3 -m docs.tools.schema

man: ## write docs/gangctl.1, docs/gangd.8 and docs/gangd-exporter.8 anew
	$(call say,MAN      docs/gangctl.1 docs/gangd*.8)
	$(Q)$(ENTER) python3 -m docs.tools.man

monitoring: ## check the Prometheus rules of docs/monitoring, run their tests, ask each panel's query
	$(Q)$(ENTER) python3 -m docs.tools.monitoring
	$(Q)$(ENTER) python3 -m pytest -q tests/host/system/test_dashboards.py

lint: ## formatters, linters and type checkers; changes nothing
	$(call say,LINT     ruff)
	$(Q)$(ENTER) ruff check --quiet .
	$(Q)$(ENTER) ruff format --quiet --check .
	$(call say,LINT     mypy)
	$(Q)$(ENTER) mypy --no-error-summary
	$(call say,LINT     clang-format)
	$(Q)$(if $(C_SOURCES),$(ENTER) clang-format-19 --dry-run -Werror $(C_SOURCES))
	$(call say,LINT     shellcheck)
	$(Q)$(ENTER) shellcheck $(SHELL_SOURCES)

unit: build ## the tests that need no virtual machine
	$(Q)$(ENTER) python3 -m pytest tests $(LANES) -m 'not lab and not fleet'

test: build ## all tests, the lab's included; results in build/test.xml (JUnit), each check of a VM by its name
	$(Q)$(ENTER) python3 -m pytest tests $(LANES) --junitxml=build/test.xml -m '$(DEFAULT)'

test-long: build ## the boots that the default run has no time for
	$(Q)$(ENTER) python3 -m pytest tests $(LANES) -m long

test-debug: build ## the checks on a debug kernel (lockdep, KASAN, kmemleak), compiled the first time
	$(Q)$(ENTER) python3 -m pytest tests/vm/test_debug.py -m debug

test-intel: build ## the kernel side on an emulated Intel host, and on an AMD one (Bochs, compiled the first time)
	$(Q)$(ENTER) python3 -m pytest tests/vm/test_intel.py -m intel

# In network and mount namespaces of their own: the cluster has fixed ports, and a pod's secrets in /run.
fleet: build ## a real Kubernetes descheduler acts on gangd's signal; builds a cluster the first time (needs Go)
	$(Q)tests/host/fleet/build
	$(Q)$(ENTER) python3 -m host.fleet.packages
	$(Q)$(ENTER) unshare --net --mount sh -c 'ip link set lo up && exec python3 -m pytest tests/host/fleet -q -m fleet'

nightly: ## what is too long for make test, hours; NIGHTLY="long intel" alone; outcome in docs/results/nightly.json
	$(Q)$(ENTER) python3 -m nightly $(NIGHTLY)

sim: ## a host full of guests in a discrete-event simulation; SIM="--cpus 64 --guests 40" describes one
	$(Q)$(ENTER) python3 -m gangsim $(SIM)

demo: ## guests fight over the CPUs, then gangd takes over; HOST=1: on this machine; DEMO=--write: into README
	$(call say,PAYLOAD  build/payload/loads.elf build/demo/spinner)
	$(Q)$(ENTER) make --silent -C tests/lab/guests/flat
	$(Q)mkdir -p build/demo
	$(Q)$(ENTER) gcc -O2 -static -pthread -Wall -Wextra -Werror -o build/demo/spinner tests/bench/demo/spinner.c
	$(Q)$(if $(HOST),$(BARE),$(ENTER)) python3 -m bench.demo $(if $(HOST),--host) $(DEMO)

bench-kernel: ## the kernel side against the default scheduler: a matrix, hours; BENCH='--quick' for minutes
	$(call say,PAYLOAD  build/payload/loads.elf)
	$(Q)$(ENTER) make --silent -C tests/lab/guests/flat
	$(Q)$(ENTER) python3 -m bench $(BENCH)

bench-adaptive: ## the policy adaptive against the best of its three arms, under the daemon; forty minutes
	$(call say,PAYLOAD  build/payload/loads.elf)
	$(Q)$(ENTER) make --silent -C tests/lab/guests/flat
	$(Q)$(ENTER) python3 -m bench --adaptive $(BENCH)

bench-seeds: ## the RFC's loads in Linux guests, gangs against default and pins; hours; HOST=1: on this machine
	$(call say,PAYLOAD  build/payload/loads.elf)
	$(Q)$(ENTER) make --silent -C tests/lab/guests/flat
	$(Q)$(if $(HOST),$(ENTER) python3 -m bench.seeds.image)
	$(Q)$(if $(HOST),$(BARE),$(ENTER)) python3 -m bench --seeds $(if $(HOST),--host) $(BENCH)

bench-tile: ## guests that all do something else on one host, arms against the default scheduler; hours
	$(call say,PAYLOAD  build/payload/loads.elf)
	$(Q)$(ENTER) make --silent -C tests/lab/guests/flat
	$(Q)$(ENTER) python3 -m bench --tile $(BENCH)

publish: ## all of docs/results that is missing or old, a VM for each CPU, then its pages; goes on where it was
	$(call say,PAYLOAD  build/payload/loads.elf)
	$(Q)$(ENTER) make --silent -C tests/lab/guests/flat
	$(Q)$(ENTER) python3 -m bench --publish $(BENCH)

bench-noise: ## one cell of bench-kernel, and again beside two busy loops: the figures must be the same
	$(call say,PAYLOAD  build/payload/loads.elf)
	$(Q)$(ENTER) make --silent -C tests/lab/guests/flat
	$(Q)$(ENTER) python3 -m bench --noise $(BENCH)

bench-idle: ## what gangd costs at 1,000 guests of 8 vCPUs, also without a scheduler and with a guest that hangs
	$(Q)$(ENTER) python3 -m host.scale.idle $(BENCH)

bench-rows: ## the checks' figures on every kernel that schedules gangs, six minutes a kernel; BENCH="6.18 7.3"
	$(Q)$(ENTER) python3 -m bench.rows $(BENCH)

bench-harm: ## whom gangs harm, simulated, against the default scheduler; fails if a row is; HARM='--only hog'
	$(Q)$(ENTER) python3 -m gangsim.harm $(HARM)

fuzz: ## marks, configuration, journal and names with inputs that coverage leads on; N=100000 of each
	$(Q)$(ENTER) tests/host/fuzz/run $(N)

soak: ## a thousand starts and stops, then an hour of churn: gangd must not grow; SOAK='--minutes 5'
	$(Q)$(ENTER) python3 -m host.scale.churn $(SOAK)

lab-shell: ## a shell in a VM; K=6.12 picks another kernel
	$(Q)tests/lab/run --kernel $(K) --interactive

clean: ## remove what was built, but not the lab
	$(Q)find build -mindepth 1 -maxdepth 1 ! -name lab -exec rm -rf {} + 2>/dev/null || true
	$(Q)find daemon policies kernel-helper tests -name '*.so' -delete -o -name '*.bpf.o' -delete
	$(Q)rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis

distclean: clean ## remove the lab too: toolbox, kernels, images
	$(Q)rm -rf build
