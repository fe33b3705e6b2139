// Libraries, functions and pipelines.
#import "sim.h"

@implementation SimLibrary
@synthesize label;

- (void)dealloc {
    [label release];
    [path release];
    [super dealloc]; // the code stays loaded: other libraries may share the file
}

- (NSArray *)functionNames {
    NSMutableArray *names = [NSMutableArray array];
    for (const msl_kernel *k = table(); k->name; k++) [names addObject:[NSString stringWithUTF8String:k->name]];
    return names;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name {
    return [self newFunctionWithName:name constantValues:nil error:NULL];
}

static SimConstant *value_of(const msl_fconst *c, NSArray *values) {
    SimConstant *found = nil;
    for (SimConstant *v in values) {
        if (v->name ? !strcmp([v->name UTF8String], c->name) : v->index == (NSUInteger)c->id) found = v;
    }
    return found;
}

// problem says why the function cannot be created with these constants.
- (NSString *)problemOf:(const msl_kernel *)k values:(NSArray *)values {
    for (const msl_fconst *c = constants(); c->name; c++) {
        if (c->id < 0) continue;
        SimConstant *v = value_of(c, values);
        if (v && (int)v->type != c->type)
            return [NSString stringWithFormat:@"function constant %s (%d) has type %d, the value has type %lu", c->name, c->id, c->type, (unsigned long)v->type];
        for (const int *n = k->needs; !v && *n >= 0; n++) {
            if (*n == c->id) return [NSString stringWithFormat:@"%s needs a value for function constant %s (%d)", k->name, c->name, c->id];
        }
    }
    return nil;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name constantValues:(MTLFunctionConstantValues *)v error:(NSError **)error {
    if (!name) sim_die("newFunctionWithName: no name");
    const msl_kernel *k = find([name UTF8String]);
    NSString *problem = k ? [self problemOf:k values:v ? v->values : nil] : [NSString stringWithFormat:@"the library has no function %@", name];
    if (problem) {
        NSInteger code = k ? MTLLibraryErrorCompileFailure : MTLLibraryErrorFunctionNotFound;
        if (error) *error = sim_error(MTLLibraryErrorDomain, code, problem, nil);
        return nil;
    }
    SimFunction *f = [[SimFunction alloc] init];
    f->library = [self retain];
    f->kernel = k;
    f->constants = v ? [v->values copy] : nil;
    return f;
}
@end

@implementation SimFunction
@synthesize label;
- (NSString *)name {
    return [NSString stringWithUTF8String:kernel->name];
}
- (void)dealloc {
    [library release];
    [constants release];
    [label release];
    [super dealloc];
}
@end

@implementation SimPipeline
- (NSString *)label {
    return nil;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    return maxThreads;
}
- (NSUInteger)threadExecutionWidth {
    return 32;
}
// Known once the kernel has run; the runtime checks the sum at each dispatch.
- (NSUInteger)staticThreadgroupMemoryLength {
    return function->library->staticThreadgroup(function->kernel);
}
- (void)dealloc {
    sim_died(self);
    [function release];
    [super dealloc];
}
@end
