// SPDX-License-Identifier: Apache-2.0
/* Object: what a loaded object is for: attach its programs, or run one now. */
#include "core.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * A link made while another thread closed the object is undone: close() promises that nothing
 * stays attached. Ends the caller's hold.
 */
static PyObject *wrap_link(struct object *self, struct bpf_link *link, int err,
			   const struct core_log *log, const char *what, const char *name)
{
	PyObject *wrapped = NULL;

	if (!link)
		core_raise(core_state_of(self), err, log, "%U: attach %s '%s'", self->name, what,
			   name);
	else if (!object_need(self, OBJECT_LOADED))
		bpf_link__destroy(link);
	else
		wrapped = link_new(self, link);
	object_release(self);
	return wrapped;
}

/* Attach @prog, or the struct_ops that @map holds where there is no program. */
static PyObject *attach(struct object *self, struct bpf_program *prog, struct bpf_map *map,
			const char *name)
{
	struct bpf_link *link;
	int err;
	CORE_LOG(log);

	object_hold(self);
	Py_BEGIN_ALLOW_THREADS
	link = prog ? bpf_program__attach(prog) : bpf_map__attach_struct_ops(map);
	err = errno;
	Py_END_ALLOW_THREADS
	return wrap_link(self, link, err, &log, prog ? "program" : "struct_ops", name);
}

PyObject *object_attach(PyObject *op, PyObject *arg)
{
	struct object *self = (struct object *)op;
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	struct bpf_program *prog;

	if (!name || !object_need(self, OBJECT_LOADED))
		return NULL;
	prog = object_find_program(self, name);
	return prog ? attach(self, prog, NULL, name) : NULL;
}

PyObject *object_attach_struct_ops(PyObject *op, PyObject *arg)
{
	struct object *self = (struct object *)op;
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	struct bpf_map *map;

	if (!name || !object_need(self, OBJECT_LOADED))
		return NULL;
	map = object_find_map(self, name);
	return map ? attach(self, NULL, map, name) : NULL;
}

/* The kernel writes the context back into ctx_in: never hand it Python's bytes. */
static int run_program(struct object *self, struct bpf_program *prog, const void *ctx,
		       Py_ssize_t size, int *retval)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts);
	void *copy = NULL;
	int err;

	if (size) {
		copy = malloc((size_t)size);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, ctx, (size_t)size);
		opts.ctx_in = copy;
		opts.ctx_size_in = (__u32)size;
	}
	object_hold(self);
	Py_BEGIN_ALLOW_THREADS
	err = bpf_prog_test_run_opts(bpf_program__fd(prog), &opts);
	Py_END_ALLOW_THREADS
	object_release(self);
	free(copy);
	*retval = (int)opts.retval;
	return err;
}

PyObject *object_run(PyObject *op, PyObject *args)
{
	struct object *self = (struct object *)op;
	struct bpf_program *prog;
	int err = 0, retval = 0;
	Py_buffer ctx = {0};
	const char *name;
	CORE_LOG(log);

	if (!PyArg_ParseTuple(args, "s|y*:run", &name, &ctx))
		return NULL;
	prog = object_need(self, OBJECT_LOADED) ? object_find_program(self, name) : NULL;
	if (prog && ctx.len > UINT16_MAX)
		PyErr_Format(PyExc_ValueError, "context of %zd bytes; the kernel takes 65535",
			     ctx.len);
	else if (prog)
		err = run_program(self, prog, ctx.buf, ctx.len, &retval);
	if (ctx.obj)
		PyBuffer_Release(&ctx);
	if (err)
		core_raise(core_state_of(self), err, &log, "%U: run program '%s'", self->name,
			   name);
	return PyErr_Occurred() ? NULL : PyLong_FromLong(retval);
}
