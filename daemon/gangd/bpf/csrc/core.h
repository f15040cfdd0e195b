/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gangd.bpf._core: handles over the distribution's libbpf, and no policy.
 *
 *	Object --- owns ---> struct bpf_object
 *	  ^  ^
 *	  |  +--- strong reference --- Link --- owns ---> struct bpf_link
 *	  +------ strong reference --- Map  --- borrows > struct bpf_map
 *
 * A Map or a Link keeps its Object alive, never the other way round, so there are
 * no cycles. An Object knows its live links (without owning them) because closing
 * it has to detach them first.
 *
 * The GIL protects every field. Calls that may take long (load, attach, detach,
 * run) drop it; users then keeps the bpf_object from being freed under them: close()
 * marks the Object closed at once, and the last user frees it.
 *
 * The typed face and the documentation are in ../_core.pyi.
 */
#ifndef GANGD_BPF_CORE_H
#define GANGD_BPF_CORE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

struct core_state {
	PyObject *error; /* class BpfError */
	PyTypeObject *object_type;
	PyTypeObject *map_type;
	PyTypeObject *link_type;
	struct btf *vmlinux; /* BTF of the running kernel, loaded on first use */
};

enum object_state {
	OBJECT_OPEN,	/* knobs may be set */
	OBJECT_LOADING, /* another thread is in bpf_object__load() */
	OBJECT_LOADED,
	OBJECT_FAILED, /* libbpf never loads the same bpf_object twice */
	OBJECT_CLOSED,
};

struct link;

struct object {
	PyObject_HEAD
	PyObject *name; /* outlives bpf: errors after close() name the object too */
	struct bpf_object *bpf;
	struct link *links; /* live links; not owned */
	int users;	    /* calls inside libbpf without the GIL, and close() itself */
	enum object_state state;
};

struct link {
	PyObject_HEAD
	struct object *owner;
	struct bpf_link *bpf; /* NULL once destroyed */
	struct link *next;    /* in owner->links */
};

/* libbpf's messages of one call. The caller has them on its stack. */
struct core_log {
	char *text;
	size_t len;
	size_t size;
	struct core_log *outer;
};

/* A map keeps here what its ring buffer held at the last drain(). */
struct records {
	struct ring_buffer *ring; /* NULL before the first one */
	char *data;
	size_t len;
	size_t size;
};

struct map {
	PyObject_HEAD
	struct object *owner;
	struct bpf_map *bpf; /* valid until the owner is closed */
	struct records records;
};

/* The kernel's internal errno that leaks from bpf(); libc has no text for it. */
#define KERNEL_ENOTSUPP 524

/* error.c */
void core_log_install(void);
void core_log_begin(struct core_log *log);
void core_log_end(struct core_log *log);
void *core_raise(struct core_state *st, int err, const struct core_log *log, const char *what, ...);

/* Collects libbpf's messages of this thread until the end of the scope. */
#define CORE_LOG(name)                                                                             \
	__attribute__((cleanup(core_log_end))) struct core_log name;                               \
	core_log_begin(&name)

/* object.c, use.c, rodata.c, struct_ops.c, share.c, map*.c, link.c, btf.c */
extern PyType_Spec object_spec;
extern PyType_Spec map_spec;
extern PyType_Spec link_spec;
extern PyMethodDef core_functions[];

bool object_need(struct object *self, enum object_state wanted);
bool object_not_closed(struct object *self);
void object_hold(struct object *self);
void object_release(struct object *self);
struct core_state *core_state_of(void *self);

struct bpf_program *object_find_program(struct object *self, const char *name);
struct bpf_map *object_find_map(struct object *self, const char *name);

PyObject *object_attach(PyObject *op, PyObject *arg);
PyObject *object_attach_struct_ops(PyObject *op, PyObject *arg);
PyObject *object_run(PyObject *op, PyObject *args);

PyObject *object_rodata(PyObject *op, PyObject *unused);
PyObject *object_set_rodata(PyObject *op, PyObject *arg);
PyObject *object_rodata_var(PyObject *op, PyObject *arg);
PyObject *object_set_const(PyObject *op, PyObject *args);
PyObject *object_set_struct_ops(PyObject *op, PyObject *args);
PyObject *object_share_map(PyObject *op, PyObject *arg);

void *map_raise(struct map *self, int err, const struct core_log *log, const char *action);
size_t map_value_bytes(struct map *self);
PyObject *map_lookup_bytes(struct map *self, const void *key, __u64 flags);
PyObject *map_keys(PyObject *op, PyObject *unused);
PyObject *map_items(PyObject *op, PyObject *args, PyObject *kwargs);
PyObject *map_drain(PyObject *op, PyObject *unused);
void map_forget_records(struct map *self);

PyObject *link_new(struct object *owner, struct bpf_link *bpf);
int link_detach(struct link *self);
PyObject *detach_link(PyObject *module, PyObject *arg);

/* Drops the object that a "new" function made when its caller fails. */
void core_free_instance(void *self);

#endif /* GANGD_BPF_CORE_H */
